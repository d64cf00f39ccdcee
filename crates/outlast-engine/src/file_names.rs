//! Names of files as text. Linux allows any bytes in a name; JSON, URLs and models need text.
//!
//! Almost every name is UTF-8 and is shown as it is. In any other, each byte that is no character becomes `\xff`, and a
//! backslash becomes `\\`. A name that already looks like that is escaped too, so no two files have the same text, and
//! the text leads back to the file.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

pub(crate) fn shown(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    if let Ok(text) = std::str::from_utf8(bytes)
        && !has_escapes(text.as_bytes())
    {
        return text.to_owned();
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', r"\\"));
        text.extend(chunk.invalid().iter().map(|byte| format!(r"\x{byte:02x}")));
    }
    text
}

/// The path that is shown as this text. It adds no slash, dot or zero byte, so checks of the text hold for the path.
pub(crate) fn named(text: &str) -> PathBuf {
    let mut rest = text.as_bytes();
    if !has_escapes(rest) {
        return PathBuf::from(text);
    }
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some((&first, behind)) = rest.split_first() {
        let (byte, behind) = escape(rest).unwrap_or((first, behind));
        bytes.push(byte);
        rest = behind;
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn has_escapes(text: &[u8]) -> bool {
    (0..text.len()).any(|place| escape(&text[place..]).is_some())
}

/// The escape that the text begins with: the byte that it stands for, and what follows it.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    match text {
        [b'\\', b'\\', rest @ ..] => Some((b'\\', rest)),
        [b'\\', b'x', high, low, rest @ ..] => {
            let digit = |byte: u8| char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
            let byte = u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()?;
            (!byte.is_ascii()).then_some((byte, rest)) // the others are characters and are never escaped
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn x9_a_name_that_is_not_utf_8_is_shown_with_escapes_and_others_as_they_are() {
        let cases: [(&[u8], &str); 8] = [
            (b"src/main.rs", "src/main.rs"),
            ("über/ファイル".as_bytes(), "über/ファイル"),
            (br"a\b", r"a\b"),
            (br"a\x2fb\xFF", r"a\x2fb\xFF"),
            (b"caf\xe9", r"caf\xe9"),
            (b"caf\xe9\\n", r"caf\xe9\\n"),
            (br"caf\xe9", r"caf\\xe9"),
            (br"a\\b", r"a\\\\b"),
        ];
        for (name, text) in cases {
            let path = Path::new(OsStr::from_bytes(name));
            assert_eq!(shown(path), text);
            assert_eq!(named(text), path);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn x9_no_two_names_are_shown_alike(
            name in proptest::collection::vec(prop_oneof![Just(b'\\'), Just(b'x'), Just(b'f'), any::<u8>()], 0..12)
        ) {
            let path = PathBuf::from(OsString::from_vec(name));
            prop_assert_eq!(named(&shown(&path)), path);
        }
    }
}
