//! An upstream that misbehaves at random: it cuts, splits, repeats, drops, flips and inserts bytes anywhere in
//! either vendor's responses. A seed determines everything; `OUTLAST_SEED=17` repeats one, `OUTLAST_SEEDS=100000`
//! tries more than usual.

use std::time::Duration;

use crate::bench::{Bench, KINDS, Kind};
use crate::server::{Act, Script, chunked, document, events};
use crate::streams::{calls, ends, says};

/// The number of seeds in a normal run.
const SEEDS: u64 = 600;
/// Longer than any response of this upstream takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const TEXT: &str = "Héllo";
const TOOL: &str = r#"t1 look {"at":"é"}"#;

/// SplitMix64, as in the simulation.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % sides as u64).unwrap()
    }

    /// A short random range within `length` bytes.
    fn piece(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.roll(length);
        start..(start + 1 + self.roll(8)).min(length)
    }
}

/// The response to one call, and whether its text is still unchanged.
fn misbehave(kind: Kind, dice: &mut Dice) -> (Script, bool) {
    let mut faithful = true;
    let separator = [": keep alive\n\n", "", "\n", "event: unknown\ndata: {}\n\n"][dice.roll(4)];
    let body = [says(kind, "Hé"), says(kind, "llo"), calls(kind), ends(kind)].join(separator);
    let body = if dice.roll(3) == 0 { body.replace('\n', "\r\n") } else { body };
    let mut bytes = match dice.roll(3) {
        0 => chunked(&body, 1 + dice.roll(40)),
        1 => document(200, "content-type: text/event-stream\r\n", &body),
        _ => events(&body),
    };
    if dice.roll(6) == 0 {
        let status = [400, 401, 429, 500, 503][dice.roll(5)];
        bytes = document(status, "retry-after: 0\r\n", r#"{"error":{"message":"no"}}"#);
    }
    if dice.roll(3) == 0 {
        faithful = false;
        for _ in 0..=dice.roll(3) {
            let piece = dice.piece(bytes.len());
            match dice.roll(4) {
                0 => bytes[piece.start] ^= 1 << dice.roll(8),
                1 => drop(bytes.drain(piece)),
                2 => bytes.extend_from_within(piece),
                _ => bytes.insert(piece.start, u8::try_from(dice.roll(256)).unwrap()),
            }
            if bytes.is_empty() {
                break;
            }
        }
    }
    let mut last = None;
    if !bytes.is_empty() && dice.roll(3) == 0 {
        bytes.truncate(dice.roll(bytes.len()));
        last = (dice.roll(2) == 0).then_some(Act::Reset);
    }
    let mut script: Script = Vec::new();
    while !bytes.is_empty() {
        let rest = bytes.split_off((1 + dice.roll(bytes.len().min(200))).min(bytes.len()));
        script.push(if dice.roll(8) == 0 { Act::Drip(bytes) } else { Act::Send(bytes) });
        bytes = rest;
    }
    script.extend(last);
    (script, faithful)
}

async fn one(kind: Kind, bench: &Bench, seed: u64) -> bool {
    let mut dice = Dice(seed);
    let attempts: Vec<(Script, bool)> = (0..3).map(|_| misbehave(kind, &mut dice)).collect();
    let scripts = attempts.iter().map(|(script, _)| script.clone()).collect();
    let outcome = tokio::time::timeout(PATIENCE, bench.run(scripts)).await;
    let outcome = outcome.unwrap_or_else(|_| panic!("seed {seed} does not end"));
    let at = format!("seed {seed}: {:?} {}", outcome.told(), outcome.error);
    let (_, faithful) = attempts[outcome.calls - 1];
    if outcome.end_reason == "stop" && faithful {
        assert_eq!(
            (outcome.text.as_str(), outcome.tools.as_slice()),
            (TEXT, [TOOL.to_owned()].as_slice()),
            "{at}"
        );
    }
    if faithful {
        assert!(TEXT.starts_with(&outcome.text), "{at}");
    }
    assert!(outcome.end_reason == "stop" || !faithful || !outcome.error.is_empty(), "{at}");
    outcome.end_reason == "stop"
}

#[tokio::test]
async fn whatever_an_upstream_does_there_is_one_end_and_nothing_shown_is_lost() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("OUTLAST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("OUTLAST_SEEDS").unwrap_or(SEEDS),
    };
    let benches = [Bench::impatient(KINDS[0]).await, Bench::impatient(KINDS[1]).await];
    let (mut complete, total) = (0, seeds.end - seeds.start);
    for seed in seeds {
        let which = usize::try_from(seed % 2).unwrap();
        complete += u64::from(one(KINDS[which], &benches[which], seed).await);
    }
    // If everything fails, or nothing, the test proves little.
    assert!(total < 100 || (complete > total / 4 && complete < total), "{complete} of {total}");
}
