//! A model that needs no key. It describes what Outlast does, at reading speed, and demonstrates tools if the user asks
//! for that.

mod agent;

use std::time::Duration;

use futures_util::stream::{StreamExt, unfold};
use outlast_core::{Context, ContextMessage, Piece, Role, TextKind};

use super::{Arrived, Model, ModelStream};

/// The average wait before a word.
const PACE: Duration = Duration::from_millis(45);
/// The maximum number of words that a message can ask for ("400 words").
const WORDS_MAX: usize = 5_000;

/// Always gives the same answer to the same question.
#[derive(Clone, Debug)]
pub struct DemoModel {
    pace: Duration,
}

impl Default for DemoModel {
    fn default() -> DemoModel {
        DemoModel { pace: PACE }
    }
}

impl DemoModel {
    /// Waits about this long before each word.
    pub fn with_pace(pace: Duration) -> DemoModel {
        DemoModel { pace }
    }
}

impl Model for DemoModel {
    fn call(&self, context: Context) -> ModelStream {
        let asked = context.messages.iter().rev().find(|message| message.role == Role::User);
        let asked = asked.map_or_else(String::new, ContextMessage::text);
        let (words, calls) = match agent::turn(&context) {
            Some(turn) => (words(&turn.text), turn.calls),
            None => (answer(&asked), Vec::new()),
        };
        let input_tokens =
            context.messages.iter().map(|message| message.text().split(' ').count() as u64).sum();
        let usage = Piece::Usage { input_tokens, output_tokens: words.len() as u64 };
        let said = words.into_iter().map(|text| Piece::Text { kind: TextKind::Answer, text, chunks: 1 });
        let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
        let round = context.messages.len(); // so each call of the demo uses new ids
        let asks = calls.into_iter().enumerate().map(move |(place, (name, input))| Piece::ToolCall {
            id: format!("call_{round}_{place}"),
            name: name.to_owned(),
            input,
        });
        let pieces = said.chain(asks).chain([usage]).map(Arrived::Piece);
        let steps: Vec<Arrived> = pieces.chain([Arrived::Finished { reason: reason.to_owned() }]).collect();
        let dice = Dice(seed(&asked));
        unfold((steps.into_iter(), dice, self.pace), |(mut steps, mut dice, pace)| async move {
            let step = steps.next()?;
            if matches!(step, Arrived::Piece(Piece::Text { .. })) {
                tokio::time::sleep(pace.mul_f64(0.3 + 1.4 * dice.fraction())).await;
            }
            Some((Ok(step), (steps, dice, pace)))
        })
        .boxed()
    }
}

const OPENINGS: &[&str] = &[
    "Good question.",
    "Let me show you what this server does while you watch.",
    "Here is an answer you cannot lose.",
];

const PARAGRAPHS: &[&str] = &[
    "I am the **demo model**: no key, no network, the same words for the same question. Everything around me is real, though. Each word you see was written to disk before it was shown to you.",
    "Try to break this. Reload the page in the middle of a sentence, close the tab, lock your phone, or stop the server with `kill -9` and start it again. The answer continues, and no word is missing or repeated.",
    "Open this conversation in a second tab:\n\n- both show the same stream, byte for byte\n- either may press Stop, and the first one wins\n- a message sent in one appears in the other",
    "The server keeps a log of events. Position `1, 2, 3, …` never changes its meaning, so a client that reconnects passes its position and gets what it missed:\n\n```sh\ncurl -N localhost:8787/v1/generations/$ID/events?after=42\n```",
    "| what happens | what you lose |\n|---|---|\n| reload | nothing |\n| lost network | nothing |\n| crash of the server | nothing that anyone saw |",
    "When you are ready, put a real model into `outlast.toml`. Any OpenAI-compatible API will do.",
];

/// The words of the answer, each with its trailing space.
fn answer(asked: &str) -> Vec<String> {
    let limit = words_asked_for(asked);
    let opening = OPENINGS[Dice(seed(asked)).below(OPENINGS.len())];
    let mut words = self::words(opening);
    for paragraph in PARAGRAPHS.iter().cycle().take(limit.unwrap_or(PARAGRAPHS.len())) {
        if limit.is_some_and(|limit| words.len() >= limit) {
            break;
        }
        let last = words.last_mut().expect("there is an opening");
        last.push_str("\n\n");
        words.extend(self::words(paragraph));
    }
    words.truncate(limit.unwrap_or(usize::MAX));
    words
}

fn words(text: &str) -> Vec<String> {
    text.split_inclusive(' ').map(str::to_owned).collect()
}

/// The number in "400 words".
fn words_asked_for(asked: &str) -> Option<usize> {
    let words: Vec<&str> = asked.split_whitespace().collect();
    let pair = words.windows(2).find(|pair| pair[1].starts_with("word"))?;
    pair[0].parse::<usize>().ok().map(|count| count.clamp(1, WORDS_MAX))
}

/// FNV-1a: small, and the same on every machine.
fn seed(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// SplitMix64: good enough for a demo, and the same on every machine.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.roll() % limit as u64).expect("smaller than a usize")
    }

    fn fraction(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_question_has_the_same_answer() {
        assert_eq!(answer("hello"), answer("hello"));
    }

    #[test]
    fn the_answer_has_as_many_words_as_the_question_asks_for() {
        assert_eq!(answer("write 400 words please").len(), 400);
        assert_eq!(answer("write 99999999 words").len(), WORDS_MAX);
    }
}
