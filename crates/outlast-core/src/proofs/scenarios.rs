//! The scenarios behind `fixtures/`. Ids and times are fixed, so every run writes the same bytes.

use std::time::Duration;

use serde_json::json;

use crate::testing::*;
use crate::{
    Brief, CallEnd, Command, Failure, FailureClass, Part, Piece, Recovery, RetryMode, Rules, Start, TextKind,
    WhenBusy,
};

mod agents;
mod delegations;
mod tools;
mod workers;

/// A scenario and its file name.
pub(crate) type Scenario = (&'static str, fn() -> World);

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("simple-answer", simple_answer),
    ("thinking-then-text", thinking_then_text),
    ("answer-without-words", answer_without_words),
    ("gathered-chunks", gathered_chunks),
    ("still-streaming", still_streaming),
    ("retry-with-retraction", retry_with_retraction),
    ("retry-waiting", retry_waiting),
    ("retry-cancelled", retry_cancelled),
    ("retry-interrupted", retry_interrupted),
    ("retries-exhausted", retries_exhausted),
    ("refused-by-the-upstream", refused_by_the_upstream),
    ("cancelled-midway", cancelled_midway),
    ("cancelled-before-the-first-token", cancelled_before_the_first_token),
    ("queue-of-two", queue_of_two),
    ("queue-cancelled", queue_cancelled),
    ("between-two-turns", between_two_turns),
    ("superseded", superseded),
    ("abandoned", abandoned_after_half_an_hour),
    ("recovered", recovered),
    ("interrupted", interrupted_and_waiting),
    ("interrupted-and-resumed", interrupted_and_resumed),
    ("interrupted-and-dismissed", interrupted_and_dismissed),
    ("failed-and-retried", failed_and_retried),
    ("failed-and-continued", failed_and_continued),
    ("continued-twice-then-retried", continued_twice_then_retried),
    ("title-and-metadata", title_and_metadata),
    ("started-by-key", started_by_key),
    ("awkward-text", awkward_text),
    ("tool-calls", tools::tool_calls),
    ("tool-calls-retracted", tools::tool_calls_retracted),
    ("goes-on-from-the-last-word", tools::goes_on_from_the_last_word),
    ("prompted", tools::prompted),
    ("made-by-a-worker", workers::made_by_a_worker),
    ("worker-lost-and-back", workers::worker_lost_and_back),
    ("worker-begins-anew", workers::worker_begins_anew),
    ("worker-asks-a-person", workers::worker_asks_a_person),
    ("worker-waits-for-a-person", workers::worker_waits_for_a_person),
    ("worker-takes-back-its-question", workers::worker_takes_back_its_question),
    ("worker-claims-while-a-person-is-asked", workers::worker_claims_while_a_person_is_asked),
    ("worker-takes-back-all-it-asked", workers::worker_takes_back_all_it_asked),
    ("agent-tools-elsewhere", agents::tools_elsewhere),
    ("delegation", delegations::parent),
    ("sub-agent", delegations::child),
    ("agent-two-rounds", agents::two_rounds),
    ("agent-tool-running", agents::tool_running),
    ("agent-approval-paused", agents::approval_paused),
    ("agent-checkpoint-left-out", agents::checkpoint_left_out),
    ("agent-approval-woken", agents::approval_woken),
    ("agent-approval-paused-killed-restored", agents::approval_paused_killed_restored),
    ("agent-always-allowed", agents::always_allowed),
    ("agent-tool-cancelled", agents::tool_cancelled),
    ("agent-tool-superseded", agents::tool_superseded),
    ("agent-tool-lost-and-resumed", agents::tool_lost_and_resumed),
    ("agent-sandbox-lost-and-restored", agents::sandbox_lost_and_restored),
    ("agent-sandbox-unavailable-and-retried", agents::sandbox_unavailable_and_retried),
    ("agent-checkpoint-failed", agents::checkpoint_failed),
    ("agent-interrupted-and-resumed", agents::agent_interrupted_and_resumed),
    ("agent-failed-and-continued", agents::agent_failed_and_continued),
    ("agent-round-retried", agents::agent_round_retried),
    ("agent-used-up", agents::used_up),
    ("agent-files-of-a-person", agents::files_of_a_person),
    ("told-when-it-ended", told_when_it_ended),
];

fn started() -> World {
    let mut world = World::new();
    world.command(start(G1)).unwrap();
    world
}

fn break_off(world: &mut World) {
    world.model(vec![], Some(broke(FailureClass::Transient)));
}

fn fail(world: &mut World) {
    world.model(vec![], Some(broke(FailureClass::Invalid)));
}

fn answer_with(world: &mut World, text: &str) {
    world.model(vec![words(text)], None);
    world.model(vec![usage(12, 3)], Some(finished()));
}

fn simple_answer() -> World {
    let mut world = started();
    for word in ["Hel", "lo", ", world."] {
        world.model(vec![words(word)], None);
    }
    world.model(vec![usage(12, 3)], Some(finished()));
    world
}

fn told_when_it_ended() -> World {
    let mut world = World::new();
    (world.unwatched_since, world.notifies) = (Some(world.now), true);
    world.command(start(G1)).unwrap();
    answer_with(&mut world, "Hello.");
    world.settle();
    world
}

fn thinking_then_text() -> World {
    let mut world = started();
    world.model(vec![thoughts("The user ")], None);
    world.model(vec![thoughts("greets me.")], None);
    world.model(vec![words("Hello."), thoughts("Was that enough?")], None);
    world.model(vec![words(" How are you?")], None);
    world.model(vec![usage(12, 9)], Some(finished()));
    world
}

fn answer_without_words() -> World {
    let mut world = started();
    world.model(vec![usage(12, 0)], Some(finished()));
    world
}

fn gathered_chunks() -> World {
    let gathered = |kind, text: &str, chunks| Piece::Text { kind, text: text.into(), chunks };
    let mut world = started();
    world.model(vec![gathered(TextKind::Thinking, "Short, then.", 4)], None);
    let more = gathered(TextKind::Answer, "One event for seventeen pieces. ", 17);
    world.model(vec![more], None);
    let rest = gathered(TextKind::Answer, "And the rest with the end.", 2);
    world.model(vec![rest, usage(12, 23)], Some(finished()));
    world
}

fn still_streaming() -> World {
    let mut world = simple_answer();
    world.command(start(G2)).unwrap();
    world.model(vec![thoughts("Again?")], None);
    world.model(vec![words("As I was say")], None);
    world
}

fn retry_with_retraction() -> World {
    let mut world = started();
    world.model(vec![words("Hel")], None);
    world.model(vec![words("lo, wor"), usage(12, 2)], Some(broke(FailureClass::Transient)));
    world.wait();
    break_off(&mut world); // before the first token: nothing to retract
    world.wait();
    answer_with(&mut world, "Hello, world.");
    world
}

fn retry_waiting() -> World {
    let mut world = started();
    world.model(vec![words("Hel")], None);
    let failure = Failure {
        class: FailureClass::RateLimited,
        message: "429: slow down".into(),
        retry_after: Some(Duration::from_secs(20)),
    };
    world.model(vec![], Some(CallEnd::Failed { failure, jitter: 0 }));
    world
}

fn retry_interrupted() -> World {
    let mut world = retry_waiting().with(Rules { recovery: Recovery::Ask, ..Rules::default() });
    world.crash();
    world.settle();
    world
}

fn retry_cancelled() -> World {
    let mut world = retry_waiting();
    world.command(cancel(G1)).unwrap();
    world
}

fn retries_exhausted() -> World {
    let mut world = started();
    for partial in ["Hel", "Hello", "Hello, wor"] {
        world.model(vec![words(partial)], None);
        world.model(vec![], Some(broke(FailureClass::Timeout)));
        if world.transcript.state.active().is_some() {
            world.wait();
        }
    }
    world
}

fn refused_by_the_upstream() -> World {
    let mut world = started();
    world.model(vec![words("I wi")], None);
    world.model(vec![], Some(broke(FailureClass::Refused)));
    world
}

fn cancelled_midway() -> World {
    let mut world = started();
    world.model(vec![words("Hello, wor")], None);
    world.command(cancel(G1)).unwrap();
    world
}

fn cancelled_before_the_first_token() -> World {
    let mut world = started();
    world.command(cancel(G1)).unwrap();
    world
}

fn queue_of_two() -> World {
    let mut world = started();
    world.model(vec![words("First ")], None);
    world.command(start_when_busy(G2, WhenBusy::Queue)).unwrap();
    world.model(vec![words("answer.")], None);
    world.command(start_when_busy(G3, WhenBusy::Queue)).unwrap();
    world.model(vec![], Some(finished()));
    answer_with(&mut world, "Second answer.");
    answer_with(&mut world, "Third answer.");
    world
}

fn queue_cancelled() -> World {
    let mut world = started();
    world.command(start_when_busy(G2, WhenBusy::Queue)).unwrap();
    world.command(start_when_busy(G3, WhenBusy::Queue)).unwrap();
    world.model(vec![words("First ")], None);
    world.command(cancel(G2)).unwrap();
    world.model(vec![words("answer.")], Some(finished()));
    answer_with(&mut world, "Third answer.");
    world
}

fn between_two_turns() -> World {
    let mut world = started();
    world.command(start_when_busy(G2, WhenBusy::Queue)).unwrap();
    world.command(start_when_busy(G3, WhenBusy::Queue)).unwrap();
    answer_with(&mut world, "First answer.");
    world
}

fn superseded() -> World {
    let mut world = started();
    world.model(vec![words("Once upon a ti")], None);
    world.command(start_when_busy(G2, WhenBusy::Queue)).unwrap();
    world.command(start_when_busy(G3, WhenBusy::Interrupt)).unwrap();
    answer_with(&mut world, "To the point.");
    world
}

fn abandoned_after_half_an_hour() -> World {
    let mut world = started();
    world.model(vec![words("Is anybody th")], None);
    world.unwatched_since = Some(world.now);
    world.wait();
    world
}

fn recovered() -> World {
    let mut world = started();
    world.model(vec![words("Hello, wor")], None);
    world.crash();
    answer_with(&mut world, "Hello, world.");
    world
}

fn interrupted_and_waiting() -> World {
    let mut world = started().with(Rules { recovery: Recovery::Ask, ..Rules::default() });
    world.model(vec![thoughts("A greeting."), words("Hello, wor")], None);
    world.crash();
    world.settle();
    world
}

fn interrupted_and_resumed() -> World {
    let mut world = interrupted_and_waiting();
    world.command(resume(G1)).unwrap();
    answer_with(&mut world, "Hello, world.");
    world
}

fn interrupted_and_dismissed() -> World {
    let mut world = interrupted_and_waiting();
    world.command(dismiss(G1)).unwrap();
    world
}

fn failed_and_retried() -> World {
    let mut world = started();
    world.model(vec![words("Hello, wor")], None);
    fail(&mut world);
    world.command(retry(G1, RetryMode::Retry, G2)).unwrap();
    answer_with(&mut world, "Hello, world.");
    world
}

fn failed_and_continued() -> World {
    let mut world = started();
    world.model(vec![words("Hello, wor")], None);
    fail(&mut world);
    world.command(retry(G1, RetryMode::Continue, G2)).unwrap();
    answer_with(&mut world, "ld.");
    world
}

fn continued_twice_then_retried() -> World {
    let mut world = started();
    world.model(vec![words("Hel")], None);
    fail(&mut world);
    world.command(retry(G1, RetryMode::Continue, G2)).unwrap();
    world.model(vec![words("lo, ")], None);
    world.command(cancel(G2)).unwrap();
    world.command(retry(G2, RetryMode::Continue, G3)).unwrap();
    world.model(vec![words("wor")], None);
    fail(&mut world);
    world.command(retry(G3, RetryMode::Retry, "gen_4")).unwrap();
    answer_with(&mut world, "Hello, world.");
    world
}

fn title_and_metadata() -> World {
    let set = |metadata| Command::Update { title: None, metadata: Some(metadata) };
    let mut world = World::new();
    world.command(set(json!({"projectId": "p1", "branch": "main"}))).unwrap();
    world.command(rename("Greetings")).unwrap();
    world.command(start(G1)).unwrap();
    answer_with(&mut world, "Hello, world.");
    world.command(set(json!(null))).unwrap();
    world.command(set(json!({"branch": "topic"}))).unwrap();
    world.command(Command::Update { title: Some(None), metadata: None }).unwrap();
    let both = Some(Some("Farewells".into()));
    world.command(Command::Update { title: both, metadata: Some(json!([1, "two"])) }).unwrap();
    world
}

fn started_by_key() -> World {
    let mut world = World::new();
    let asked = Start { key: Some("screen-17".into()), ..request(G1) };
    world.command(Command::Start(asked)).unwrap();
    world.model(vec![words("Hello.")], Some(finished()));
    world
}

fn awkward_text() -> World {
    let parts = vec![
        Part::Text { text: "naïve 👩‍🚀 \"quoted\" \\ back\u{2028}slash\n".into() },
        Part::ToolUse { id: "tool_1".into(), name: "read".into(), input: json!({"path": "a b", "n": 1.5}) },
        Part::tool_result("tool_1".into(), json!(null), true),
    ];
    let mut world = World::new();
    let asked = Start { parts, brief: Brief::default(), ..request(G1) };
    world.command(Command::Start(asked)).unwrap();
    world.model(vec![words("\u{0}\u{1f}\t</script>"), words("\u{feff}e\u{301}")], None);
    world.model(vec![words("\r\n\",\"type\":\"chat.done\"")], Some(finished()));
    world
}
