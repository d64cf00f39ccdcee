//! A table of every phase of a generation and every command or report.

use std::collections::BTreeSet;

use super::fixtures::logs;
use crate::testing::*;
use crate::{
    Earlier, FailureClass, Generation, GenerationStatus, Phase, Recovery, Refusal, Report, RetryMode, Rules,
    Transcript, WhenBusy,
};

/// The column is the phase of `gen_1`, the row is what happens to it. In each cell, a name is its new phase,
/// `+` and a name is the phase of a generation that was started, a capital letter is a refusal, `=` means that
/// something was recorded without a change of phase, and `-` that nothing was recorded.
///
/// `behind` and `next` are both queued: behind a running generation, and with nothing before it. `due` is
/// retrying after the delay.
const TABLE: &str = "
                 | none         | behind            | next              | running           | retrying          | due               | interrupted       | completed    | cancelled    | failed
start reject     | +running     | Busy              | Busy              | Busy              | Busy              | Busy              | Busy              | +running     | +running     | +running
start queue      | +running     | +queued           | +queued           | +queued           | +queued           | +queued           | +queued           | +running     | +running     | +running
start interrupt  | +running     | cancelled+running | cancelled+running | cancelled+running | cancelled+running | cancelled+running | cancelled+running | +running     | +running     | +running
start repeated   | Repeated     | Repeated          | Repeated          | Repeated          | Repeated          | Repeated          | Repeated          | Repeated     | Repeated     | Repeated
start conflict   | Conflict     | Conflict          | Conflict          | Conflict          | Conflict          | Conflict          | Conflict          | Conflict     | Conflict     | Conflict
cancel           | Gone         | cancelled         | cancelled         | cancelled         | cancelled         | cancelled         | cancelled         | Ended        | Ended        | Ended
resume           | Gone         | NotInterrupted    | NotInterrupted    | NotInterrupted    | NotInterrupted    | NotInterrupted    | running           | Ended        | Ended        | Ended
dismiss          | Gone         | NotInterrupted    | NotInterrupted    | NotInterrupted    | NotInterrupted    | NotInterrupted    | cancelled         | Ended        | Ended        | Ended
retry            | NotRetryable | Busy              | Busy              | Busy              | Busy              | Busy              | Busy              | NotRetryable | +running     | +running
continue         | NotRetryable | Busy              | Busy              | Busy              | Busy              | Busy              | Busy              | NotRetryable | +running     | +running
update           | =            | =                 | =                 | =                 | =                 | =                 | =                 | =            | =            | =
says             | -            | -                 | -                 | =                 | -                 | -                 | -                 | -            | -            | -
says, stale      | -            | -                 | -                 | -                 | -                 | -                 | -                 | -            | -            | -
finishes         | -            | -                 | -                 | completed         | -                 | -                 | -                 | -            | -            | -
finishes, stale  | -            | -                 | -                 | -                 | -                 | -                 | -                 | -            | -            | -
breaks           | -            | -                 | -                 | retrying          | -                 | -                 | -                 | -            | -            | -
breaks too often | -            | -                 | -                 | failed            | -                 | -                 | -                 | -            | -            | -
is refused       | -            | -                 | -                 | failed            | -                 | -                 | -                 | -            | -            | -
lost, safe       | -            | -                 | -                 | running           | -                 | -                 | -                 | -            | -            | -
lost, auto       | -            | -                 | -                 | running           | -                 | -                 | -                 | -            | -            | -
lost, ask        | -            | -                 | -                 | interrupted       | interrupted       | interrupted       | -                 | -            | -            | -
retry due        | -            | -                 | -                 | -                 | -                 | running           | -                 | -            | -            | -
turn came        | -            | -                 | running           | -                 | -                 | -                 | -                 | -            | -            | -
abandoned        | -            | -                 | -                 | cancelled         | cancelled         | cancelled         | -                 | -            | -            | -
";

const NEW: &str = "gen_9";

fn world_in(phase: &str) -> World {
    let broken = || [answering(G1, "Hel"), retracted(G1, 1)].concat();
    match phase {
        "none" => given([]),
        "behind" => given([running(G2), asked(G1)]),
        "next" => given([running(G2), asked(G1), completed(G2)]),
        "running" => given([answering(G1, "Hel")]),
        "retrying" => given([broken(), retrying(G1, 2, 300_000)]),
        "due" => given([broken(), retrying(G1, 2, 0)]),
        "interrupted" => given([answering(G1, "Hel"), interrupted(G1)]),
        "completed" => given([answered(G1, "Hello")]),
        "cancelled" => given([answering(G1, "Hel"), cancelled(G1)]),
        "failed" => given([answering(G1, "Hel"), failed(G1)]),
        _ => panic!("unknown phase: {phase}"),
    }
}

/// Makes it happen. Returns the short name of a refusal.
fn happen(world: &mut World, input: &str) -> Result<(), &'static str> {
    let again = |world: &mut World, digest: &str| {
        let earlier =
            Earlier { generation: G1.into(), message: question(G1).into(), digest: digest.to_owned() };
        world.facts.earlier = Some(earlier);
        world.command(start(NEW)).map_err(|refusal| short(&refusal))
    };
    let ask = |world: &mut World, command| world.command(command).map_err(|refusal| short(&refusal));
    let told = |world: &mut World, rules: Rules, report: Report| {
        world.rules = rules;
        world.report(report);
        Ok(())
    };
    let usual = Rules::default;
    let never = Rules { retries: 0, ..usual() };
    let recovery = |recovery| Rules { recovery, ..usual() };
    match input {
        "start reject" => ask(world, start_when_busy(NEW, WhenBusy::Reject)),
        "start queue" => ask(world, start_when_busy(NEW, WhenBusy::Queue)),
        "start interrupt" => ask(world, start_when_busy(NEW, WhenBusy::Interrupt)),
        "start repeated" => again(world, &request(NEW).digest),
        "start conflict" => again(world, "another body"),
        "cancel" => ask(world, cancel(G1)),
        "resume" => ask(world, resume(G1)),
        "dismiss" => ask(world, dismiss(G1)),
        "retry" => ask(world, retry(G1, RetryMode::Retry, NEW)),
        "continue" => ask(world, retry(G1, RetryMode::Continue, NEW)),
        "update" => ask(world, rename("Tea")),
        "says" => told(world, usual(), says(G1, 1, "lo")),
        "says, stale" => told(world, usual(), says(G1, 0, "lo")),
        "finishes" => told(world, usual(), finishes(G1, 1)),
        "finishes, stale" => told(world, usual(), finishes(G1, 0)),
        "breaks" => told(world, usual(), breaks(G1, 1, FailureClass::Transient)),
        "breaks too often" => told(world, never, breaks(G1, 1, FailureClass::Transient)),
        "is refused" => told(world, usual(), breaks(G1, 1, FailureClass::Refused)),
        "lost, safe" => told(world, recovery(Recovery::Safe), call_lost(G1)),
        "lost, auto" => told(world, recovery(Recovery::Auto), call_lost(G1)),
        "lost, ask" => told(world, recovery(Recovery::Ask), call_lost(G1)),
        "retry due" => told(world, usual(), retry_due(G1)),
        "turn came" => told(world, usual(), turn_came(G1)),
        "abandoned" => told(world, usual(), abandoned(G1)),
        _ => panic!("unknown input: {input}"),
    }
}

fn short(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Repeated(_) => "Repeated",
        Refusal::IdempotencyConflict { .. } => "Conflict",
        Refusal::Busy { .. } => "Busy",
        Refusal::QueueFull => "QueueFull",
        Refusal::AlreadyEnded { .. } => "Ended",
        Refusal::EndedLongAgo => "Gone",
        Refusal::NotInterrupted { .. } => "NotInterrupted",
        Refusal::NotRetryable => "NotRetryable",
        Refusal::NotForWorkers => "NotForWorkers",
        Refusal::NotAsked { .. } => "NotAsked",
        Refusal::AlreadyDecided(_) => "Decided",
        Refusal::NotCalled { .. } => "NotCalled",
        Refusal::MadeByWorker => "External",
        Refusal::StaleEpoch { .. } => "Stale",
        Refusal::SeqConflict { .. } => "SeqConflict",
        Refusal::AskedOtherwise { .. } => "AskedOtherwise",
        Refusal::ToolTooLong { .. } => "ToolTooLong",
        Refusal::AlreadyExists => "AlreadyExists",
        Refusal::MessageExists { .. } => "MessageExists",
        Refusal::ApprovalChanged { .. } => "ApprovalChanged",
        Refusal::PromptGone => "PromptGone",
        Refusal::ToolRunning => "ToolRunning",
        Refusal::WorkspaceFull { .. } => "WorkspaceFull",
        Refusal::FilesNotSaved => "FilesNotSaved",
        Refusal::AskedByChild(_) => "AskedByChild",
        Refusal::NotDelegated => "NotDelegated",
        Refusal::BelongsToParent { .. } => "BelongsToParent",
    }
}

fn phase_name(generation: &Generation) -> &'static str {
    match generation.progress.phase {
        Phase::Queued => "queued",
        Phase::Running => "running",
        Phase::Retrying { .. } => "retrying",
        Phase::Interrupted => "interrupted",
        Phase::Completed { .. } => "completed",
        Phase::Cancelled { .. } => "cancelled",
        Phase::Failed { .. } => "failed",
    }
}

/// Its phase and attempt, even if it is no longer in the state.
fn standing(world: &World, id: &str) -> Option<(&'static str, u32)> {
    if let Some(generation) = world.transcript.state.generation(&id.into()) {
        return Some((phase_name(generation), generation.progress.attempt));
    }
    let document = world.stored.generations.get(&id.into())?;
    let name = match document.status {
        GenerationStatus::Error => "failed",
        other => other.as_str(),
    };
    Some((name, document.attempt))
}

fn what_became(world: &mut World, input: &str) -> String {
    let (before, length) = (standing(world, G1), world.log.len());
    if let Err(refusal) = happen(world, input) {
        assert_eq!(world.log.len(), length, "a refusal changes nothing");
        return refusal.to_owned();
    }
    let after = standing(world, G1);
    let changed = after.filter(|_| after != before).map_or("", |(name, _)| name);
    let began = standing(world, NEW).map_or(String::new(), |(name, _)| format!("+{name}"));
    match (changed, &*began) {
        ("", "") if world.log.len() == length => "-".to_owned(),
        ("", "") => "=".to_owned(),
        (changed, began) => format!("{changed}{began}"),
    }
}

/// The cells: phase, input, result.
fn cells() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut rows = TABLE.lines().filter(|line| !line.is_empty()).map(|line| line.split('|').map(str::trim));
    let phases: Vec<&str> = rows.next().unwrap().skip(1).collect();
    let mut cells = Vec::new();
    for mut row in rows {
        let input = row.next().unwrap();
        let row: Vec<&str> = row.collect();
        assert_eq!(row.len(), phases.len(), "{input}");
        cells.extend(phases.iter().zip(row).map(|(phase, cell)| (*phase, input, cell)));
    }
    cells
}

#[test]
fn every_phase_reacts_to_every_input_as_the_table_says() {
    let differ: Vec<String> = cells()
        .into_iter()
        .filter_map(|(phase, input, expected)| {
            let became = what_became(&mut world_in(phase), input);
            (became != expected).then(|| format!("{phase}, {input}: {became}, not {expected}"))
        })
        .collect();
    assert!(differ.is_empty(), "{differ:#?}");
}

type Transitions = BTreeSet<(&'static str, &'static str)>;

/// The changes of phase in the table, event by event.
fn in_the_table() -> Transitions {
    let mut transitions = Transitions::new();
    for (phase, _, cell) in cells() {
        let from = match phase {
            "behind" | "next" => "queued",
            "due" => "retrying",
            other => other,
        };
        let (changed, began) = cell.split_once('+').unwrap_or((cell, ""));
        if !began.is_empty() {
            transitions.insert(("none", "queued")); // every generation is queued first, if only for an instant
        }
        if began == "running" {
            transitions.insert(("queued", "running"));
        }
        if changed.starts_with(|first: char| first.is_lowercase()) {
            transitions.insert((from, changed));
        }
    }
    transitions
}

#[test]
fn every_transition_of_the_table_and_no_other_happens_in_the_fixtures() {
    let mut seen = Transitions::new();
    for (_, log) in logs() {
        let mut transcript = Transcript::new(nothing_yet());
        for entry in log {
            let Some(id) = &entry.generation else { continue };
            let before = transcript.state.generation(id).cloned();
            transcript.apply(&entry);
            // A generation that is cancelled in the queue is removed from the state at once.
            let after = transcript.state.generation(id).cloned().or_else(|| {
                let mut gone = before.clone()?;
                gone.apply(&entry);
                Some(gone)
            });
            let Some(after) = after else { continue }; // the user's message, before its generation
            let standing = |generation: &Generation| (phase_name(generation), generation.progress.attempt);
            if before.as_ref().map(standing) != Some(standing(&after)) {
                seen.insert((before.as_ref().map_or("none", phase_name), phase_name(&after)));
            }
        }
    }
    assert_eq!(seen, in_the_table());
}
