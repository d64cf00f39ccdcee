//! Patterns over text: `*` stands for any text, `?` for one character, `[a-z]` for one of several characters, `[!a]` for one
//! of all others, and `{one,other}` for one of several texts. A pattern always matches itself.

use std::collections::BTreeMap;

/// Patterns over string arguments, by the argument's name. A call matches if all of them do.
pub type Patterns = BTreeMap<String, String>;

/// How many texts the choices of one pattern may stand for together. Each is compared with every call.
const ALTERNATIVES_MAX: usize = 64;

/// Says what is wrong with patterns that cannot be obeyed.
pub fn check_patterns(patterns: &Patterns) -> Result<(), String> {
    match patterns.values().find(|pattern| alternatives(pattern).is_none()) {
        Some(pattern) => Err(format!(
            "{pattern:?} has choices for more than {ALTERNATIVES_MAX} texts; use several patterns"
        )),
        None => Ok(()),
    }
}

/// Whether the whole text matches one of the alternatives of a pattern that is not ruled out. The choices of a pattern
/// that has too many, which only an older version accepted, mean themselves.
pub(crate) fn matches(pattern: &str, text: &str, is_ruled_out: impl Fn(&str) -> bool) -> bool {
    let alternatives = alternatives(pattern).unwrap_or_else(|| vec![pattern.to_owned()]);
    pattern == text || alternatives.iter().any(|pattern| glob(pattern, text) && !is_ruled_out(pattern))
}

/// The patterns without `{one,other}` that a pattern stands for; `None` if they are too many.
fn alternatives(pattern: &str) -> Option<Vec<String>> {
    let (mut open, mut plain) = (vec![pattern.to_owned()], Vec::new());
    while let Some(pattern) = open.pop() {
        match first_choice(&pattern) {
            Some(marks) => open.extend(marks.windows(2).take(ALTERNATIVES_MAX + 1).map(|mark| {
                let (before, after) = (&pattern[..marks[0]], &pattern[marks[marks.len() - 1] + 1..]);
                format!("{before}{}{after}", &pattern[mark[0] + 1..mark[1]])
            })),
            None => plain.push(pattern),
        }
        if open.len() + plain.len() > ALTERNATIVES_MAX {
            return None;
        }
    }
    Some(plain)
}

/// Where the brace, the commas and the closing brace of the first choice are that has no other inside. Braces without a
/// comma, as in `${name}`, mean themselves.
fn first_choice(pattern: &str) -> Option<Vec<usize>> {
    let mut open: Vec<Vec<usize>> = Vec::new();
    for (place, letter) in pattern.char_indices() {
        match letter {
            '{' => open.push(vec![place]),
            ',' => open.last_mut().into_iter().for_each(|marks| marks.push(place)),
            '}' => {
                let Some(mut marks) = open.pop() else { continue };
                marks.push(place);
                if marks.len() > 2 {
                    return Some(marks);
                }
            }
            _ => {}
        }
    }
    None
}

/// A part of a pattern without choices of texts.
#[derive(Debug)]
enum Part {
    /// `*`
    Text,
    /// `?`
    One,
    Letter(char),
    /// `[a-z]`, or `[!a-z]` for all others. Both ends belong to a range.
    Class {
        ranges: Vec<(char, char)>,
        others: bool,
    },
}

impl Part {
    fn is(&self, letter: char) -> bool {
        match self {
            Part::Text => false,
            Part::One => true,
            Part::Letter(expected) => *expected == letter,
            Part::Class { ranges, others } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&letter)) != *others
            }
        }
    }
}

fn parts(pattern: &str) -> Vec<Part> {
    let letters: Vec<char> = pattern.chars().collect();
    let last_close = letters.iter().rposition(|letter| *letter == ']').unwrap_or(0);
    let (mut parts, mut place) = (Vec::new(), 0);
    while let Some(letter) = letters.get(place) {
        let class =
            (*letter == '[' && place + 1 < last_close).then(|| class(&letters[place + 1..])).flatten();
        let (part, length) = match (letter, class) {
            (_, Some((class, length))) => (class, length + 1),
            ('*', None) => (Part::Text, 1),
            ('?', None) => (Part::One, 1),
            (letter, None) => (Part::Letter(*letter), 1),
        };
        parts.push(part);
        place += length;
    }
    parts
}

/// The class whose bracket was opened before these letters, and how many of them belong to it. A bracket that is never
/// closed means itself; one that is closed at once is one of the characters.
fn class(letters: &[char]) -> Option<(Part, usize)> {
    let others = letters.first() == Some(&'!');
    let first = usize::from(others);
    let close = letters.iter().skip(first + 1).position(|letter| *letter == ']')? + first + 1;
    let (mut ranges, mut rest) = (Vec::new(), &letters[first..close]);
    while let [one, after @ ..] = rest {
        let (range, left) = match after {
            ['-', last, left @ ..] => ((*one, *last), left),
            left => ((*one, *one), left),
        };
        ranges.push(range);
        rest = left;
    }
    Some((Part::Class { ranges, others }, close + 1))
}

/// Whether the whole text matches. It goes back only to the last `*`, so its time is bounded by the product of the lengths.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<Part>, Vec<char>) = (parts(pattern), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star = None; // where the last `*` is, and how much of the text it takes so far
    while t < text.len() {
        match pattern.get(p) {
            Some(Part::Text) => {
                star = Some((p, t));
                p += 1;
            }
            Some(part) if part.is(text[t]) => (p, t) = (p + 1, t + 1),
            _ => {
                let Some((place, taken)) = star else { return false };
                star = Some((place, taken + 1));
                (p, t) = (place + 1, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|part| matches!(part, Part::Text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_matched(pattern: &str, text: &str) -> bool {
        matches(pattern, text, |_| false)
    }

    #[test]
    fn brackets_are_a_choice_of_characters_and_braces_a_choice_of_texts() {
        for (pattern, yes, no) in [
            ("v[ab]", "va", "vc"),
            ("v[0-9]*", "v2.1", "vx"),
            ("v[!0-9]", "vx", "v1"),
            ("v[]x]", "v]", "v"),
            ("v[a-]", "v-", "vb"),
            ("*.{ts,tsx}", "app/page.tsx", "app/page.t"),
            ("{git,cargo} {log,{build,test}*}", "cargo test -q", "git push"),
            ("rm{, *}", "rm", "rmdir"),
            ("{secrets,*.pem}", "a.pem", "{secrets,*.pen}"),
            ("[ü-ÿ]{é,ß}", "üß", "uß"),
        ] {
            assert!(is_matched(pattern, yes), "{pattern} {yes}");
            assert!(!is_matched(pattern, no), "{pattern} {no}");
        }
    }

    #[test]
    fn what_is_no_choice_means_itself_and_a_pattern_matches_itself() {
        for literal in ["echo ${x}", "[", "a[", "]", "{a,b", "a,b}", "[]", "{}", "[!]", "ls [id]/{a,b}"] {
            assert!(is_matched(literal, literal), "{literal}");
        }
        assert!(is_matched("echo ${x}*", "echo ${x} y"));
        assert!(is_matched("[*", "[ -f x ]"));
    }

    #[test]
    fn a_pattern_with_too_many_alternatives_is_refused() {
        let of = |pattern: &str| check_patterns(&Patterns::from([("path".to_owned(), pattern.to_owned())]));
        assert_eq!(of(&"{a,b}".repeat(6)), Ok(()));
        assert!(of(&"{a,b}".repeat(7)).is_err_and(|why| why.contains("64")));
        assert!(of(&"{a,b}".repeat(10_000)).is_err());
        assert!(of(&format!("{{{}}}", ",".repeat(100_000))).is_err());
        assert_eq!(of(&"{".repeat(100_000)), Ok(()));
        let stored = "{a,b}".repeat(7);
        assert!(is_matched(&stored, &stored), "an older version accepted it as plain text");
    }

    proptest! {
        #[test]
        fn a_pattern_without_wildcards_matches_itself_and_stars_match_anything(text in "[a-c*?]{0,8}", around in "[a-c]{0,4}") {
            let literal = text.replace(['*', '?'], "a");
            prop_assert!(is_matched(&literal, &literal));
            prop_assert!(is_matched("*", &text));
            let wrapped = format!("{around}{literal}{around}");
            let stars = format!("*{literal}*");
            prop_assert!(is_matched(&stars, &wrapped));
            prop_assert_eq!(is_matched(&literal, &wrapped), literal == wrapped);
        }

        #[test]
        fn every_pattern_matches_itself_and_none_panics(pattern in "[]a!*?,{}\\[-]{0,12}", text in "[]a!,{}-]{0,6}") {
            prop_assert!(is_matched(&pattern, &pattern));
            is_matched(&pattern, &text);
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_longer_than_the_product_of_the_lengths() {
        let text = "b".repeat(2_000);
        assert!(!is_matched(&"*a".repeat(200), &text));
        assert!(!is_matched(&"*[a]".repeat(200), &text));
        assert!(!is_matched(&"[".repeat(4_000), &text));
    }
}
