//! What the world owes a conversation. Asked after every change and after every start of the server:
//! recovery is nothing but folding the log and asking this.

use crate::generation::Phase;
use crate::{Conversation, Generation, GenerationId, Report, Rules, Seq, Timestamp};

/// What the rules need to know of the outside.
#[derive(Clone, Debug)]
pub struct Surroundings<'a> {
    /// The time.
    pub now: Timestamp,
    /// The call that is under way here: whose, and which attempt.
    pub call: Option<(GenerationId, u32)>,
    /// How far the log reached when this owner took over. An attempt that began before was made by
    /// somebody who is gone.
    pub owned_after: Seq,
    /// Since when nobody watches.
    pub unwatched_since: Option<Timestamp>,
    /// When a worker was last heard, or the owner took over if none was heard since.
    pub producer_heard: Timestamp,
    /// The settings.
    pub rules: &'a Rules,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Make this happen.
    Do(Effect),
    /// This has happened by the mere passing of time or owners: observe it.
    Observe(Report),
    /// Ask again at this time, or when something changes.
    WakeAt(Timestamp),
    /// Nothing is owed until something changes.
    Nothing,
}

/// Something to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Call the model.
    CallModel {
        /// For which generation.
        generation: GenerationId,
        /// As which attempt.
        attempt: u32,
    },
}

/// What is owed now.
pub fn next(state: &Conversation, around: &Surroundings<'_>) -> Next {
    let Some(generation) = state.active() else {
        return match state.queue.front() {
            Some(waiting) => Next::Observe(Report::TurnCame { generation: waiting.id.clone() }),
            None if state.title_owed().is_some() => Next::Observe(Report::TitleOwed),
            None => Next::Nothing,
        };
    };
    let id = || generation.id.clone();
    let limit = unwatched_limit(generation, around);
    let waits = generation.waits_for_a_decision();
    let abandoned = !waits && limit.is_some_and(|limit| limit <= around.now);
    match &generation.phase {
        Phase::Interrupted => Next::Nothing, // waits for a person, for as long as it takes
        Phase::Running | Phase::Retrying { .. } if abandoned => {
            Next::Observe(Report::Abandoned { generation: id() })
        }
        // Waits for a person, for as long as it takes; time that passes meanwhile does not count.
        Phase::Running if waits => Next::Nothing,
        Phase::Running if generation.producer.is_some() => {
            // One that waited for its turn has its time from the turn on, whoever was heard before.
            let heard = generation.at_work_since.unwrap_or_default().max(around.producer_heard);
            let silent = heard.after(around.rules.producer_silence);
            if silent <= around.now {
                return Next::Observe(Report::ProducerSilent { generation: id() });
            }
            Next::WakeAt(limit.map_or(silent, |limit| limit.min(silent)))
        }
        Phase::Running => match call_owed(generation, around) {
            Some(owed) => owed,
            None => limit.map_or(Next::Nothing, Next::WakeAt),
        },
        // Whoever is to be asked before a model is called again is asked at once, not when the wait is over.
        Phase::Retrying { .. } if around.rules.ask_first() && generation.last_seq <= around.owned_after => {
            Next::Observe(Report::CallLost { generation: id() })
        }
        Phase::Retrying { until } if *until <= around.now => {
            Next::Observe(Report::RetryDue { generation: id() })
        }
        Phase::Retrying { until } => Next::WakeAt(limit.map_or(*until, |limit| limit.min(*until))),
        Phase::Queued | Phase::Completed { .. } | Phase::Cancelled { .. } | Phase::Failed { .. } => {
            Next::Nothing
        }
    }
}

/// What a running generation is owed when the call that the log tells of is not under way here.
fn call_owed(generation: &Generation, around: &Surroundings<'_>) -> Option<Next> {
    let call = (generation.id.clone(), generation.attempt);
    if around.call.as_ref() == Some(&call) {
        return None;
    }
    let (generation_id, attempt) = call;
    Some(if generation.attempt_seq <= around.owned_after {
        Next::Observe(Report::CallLost { generation: generation_id })
    } else {
        Next::Do(Effect::CallModel { generation: generation_id, attempt })
    })
}

/// When a generation that nobody watches is given up. Time that it did not spend at work does not count,
/// though nobody may have watched the conversation for days.
fn unwatched_limit(generation: &Generation, around: &Surroundings<'_>) -> Option<Timestamp> {
    let since = around.unwatched_since?.max(generation.at_work_since?);
    Some(since.after(around.rules.unwatched))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Recovery;
    use crate::testing::{running, *};

    const HALF_AN_HOUR: Duration = Duration::from_secs(30 * 60);

    fn call_model(generation: &str, attempt: u32) -> Next {
        Next::Do(Effect::CallModel { generation: generation.into(), attempt })
    }

    #[test]
    fn an_empty_conversation_is_owed_nothing() {
        assert_eq!(given([]).next(), Next::Nothing);
    }

    #[test]
    fn g1_a_started_generation_is_owed_a_call() {
        assert_eq!(given([running(G1)]).next(), call_model(G1, 1));
    }

    #[test]
    fn i6_no_second_call_is_owed_while_one_is_under_way() {
        let mut world = given([answering(G1, "Hel")]);
        world.call = Some((G1.into(), 1));
        assert_eq!(world.next(), Next::Nothing);
    }

    #[test]
    fn i6_a_call_of_an_older_attempt_or_another_generation_is_not_this_one() {
        let mut world = given([running(G1), retrying(G1, 2, 0), started(G1, 2)]);
        for other in [(G1, 1), (G2, 2)] {
            world.call = Some((other.0.into(), other.1));
            assert_eq!(world.next(), call_model(G1, 2));
        }
    }

    #[test]
    fn p2_a_call_that_a_former_owner_made_is_lost() {
        let mut world = given([answering(G1, "Hel")]);
        world.owned_after = Seq(5);
        assert_eq!(world.next(), Next::Observe(call_lost(G1)));
        world.owned_after = Seq(2); // took over before the attempt began: it is this owner's own
        assert_eq!(world.next(), call_model(G1, 1));
    }

    #[test]
    fn p2_recovery_calls_the_model_anew_after_recording_that_it_will() {
        let mut world = given([answering(G1, "Hel")]);
        world.crash();
        assert!(world.step());
        assert_eq!(world.next(), call_model(G1, 2));
    }

    #[test]
    fn p2_an_interrupted_run_waits_for_a_person_for_ever() {
        let mut world = given([answering(G1, "Hel"), interrupted(G1)]);
        world.unwatched_since = Some(CREATED);
        world = world.later(Duration::from_secs(365 * 86_400));
        assert_eq!(world.next(), Next::Nothing);
        world.crash();
        assert_eq!(world.next(), Next::Nothing);
    }

    #[test]
    fn p2_ask_leaves_a_waiting_generation_to_its_turn() {
        let ask = crate::Rules { recovery: Recovery::Ask, ..crate::Rules::default() };
        let mut world = given([running(G1), asked(G2)]).with(ask);
        world.crash();
        world.settle();
        assert_eq!(world.generation(G1).phase, Phase::Interrupted);
        assert_eq!(world.generation(G2).phase, Phase::Queued);
        world.command(dismiss(G1)).unwrap();
        world.settle();
        assert_eq!(world.call, Some((G2.into(), 1)));
    }

    #[test]
    fn g11_a_retry_waits_for_its_time_and_a_crash_does_not_shorten_it() {
        let mut world = given([running(G1), retrying(G1, 2, 5_000)]);
        let due = world.now.after(Duration::from_secs(5));
        assert_eq!(world.next(), Next::WakeAt(due));
        world.crash();
        assert_eq!(world.next(), Next::WakeAt(due));
        world.now = due;
        assert_eq!(world.next(), Next::Observe(retry_due(G1)));
    }

    #[test]
    fn p2_ask_interrupts_also_what_waits_for_a_retry() {
        let ask = crate::Rules { recovery: Recovery::Ask, ..crate::Rules::default() };
        let mut world = given([running(G1), retrying(G1, 2, 5_000)]).with(ask);
        assert!(matches!(world.next(), Next::WakeAt(_)), "without a crash nobody is asked");
        world.crash();
        world.settle();
        assert_eq!(world.generation(G1).phase, Phase::Interrupted);
        assert_eq!(world.generation(G1).retry, None);
        world.command(resume(G1)).unwrap();
        world.settle();
        assert_eq!(world.call, Some((G1.into(), 2)));
    }

    #[test]
    fn g14_the_oldest_that_waits_is_owed_its_turn() {
        let world = given([running(G1), asked(G2), asked(G3), cancelled(G1)]);
        assert_eq!(world.next(), Next::Observe(turn_came(G2)));
    }

    #[test]
    fn g4_an_ended_conversation_is_owed_nothing() {
        for end in [completed(G1), cancelled(G1), failed(G1)] {
            assert_eq!(given([titled("Tea"), running(G1), end]).next(), Next::Nothing);
        }
    }

    #[test]
    fn s5_only_an_answer_owes_a_title_and_only_where_there_is_none() {
        assert_eq!(given([running(G1), completed(G1)]).next(), Next::Observe(Report::TitleOwed));
        for end in [cancelled(G1), failed(G1)] {
            assert_eq!(given([running(G1), end]).next(), Next::Nothing);
        }
    }

    fn watched_until(since: Timestamp, past: Past) -> World {
        let mut world = given([past]);
        world.call = Some((G1.into(), world.generation(G1).attempt));
        world.unwatched_since = Some(since);
        world
    }

    #[test]
    fn g12_a_watched_generation_has_no_limit() {
        let mut world = given([answering(G1, "Hel")]).later(Duration::from_secs(365 * 86_400));
        world.call = Some((G1.into(), 1));
        assert_eq!(world.next(), Next::Nothing);
    }

    #[test]
    fn g12_an_unwatched_generation_is_abandoned_after_half_an_hour() {
        let left = CREATED.after(Duration::from_secs(60));
        let mut world = watched_until(left, answering(G1, "Hel"));
        assert_eq!(world.next(), Next::WakeAt(left.after(HALF_AN_HOUR)));
        world.now = left.after(HALF_AN_HOUR);
        assert_eq!(world.next(), Next::Observe(abandoned(G1)));
    }

    #[test]
    fn g12_time_before_the_generation_ran_does_not_count() {
        let long_ago = Timestamp(CREATED.0 - 86_400_000);
        let world = watched_until(long_ago, running(G1));
        assert_eq!(world.next(), Next::WakeAt(world.now.after(HALF_AN_HOUR)));
    }

    #[test]
    fn g12_time_spent_waiting_for_a_person_does_not_count() {
        let mut world = given([running(G1), interrupted(G1)]).later(Duration::from_secs(86_400));
        world.command(resume(G1)).unwrap();
        let resumed = world.now;
        world.call = Some((G1.into(), 2));
        world.unwatched_since = Some(CREATED);
        assert_eq!(world.next(), Next::WakeAt(resumed.after(HALF_AN_HOUR)));
    }

    #[test]
    fn g12_retries_do_not_set_the_clock_back() {
        let world = watched_until(CREATED, [running(G1), retrying(G1, 2, 0), started(G1, 2)].concat());
        let began = world.generation(G1).started_at.unwrap();
        assert_eq!(world.next(), Next::WakeAt(began.after(HALF_AN_HOUR)));
    }

    #[test]
    fn g12_a_generation_that_waits_for_a_retry_is_abandoned_too() {
        let late = watched_until(CREATED, [running(G1), retrying(G1, 2, 60 * 60_000)].concat());
        let limit = late.generation(G1).started_at.unwrap().after(HALF_AN_HOUR);
        assert_eq!(late.next(), Next::WakeAt(limit));
        let late = World { now: limit, ..late };
        assert_eq!(late.next(), Next::Observe(abandoned(G1)));
    }

    #[test]
    fn x3_a_worker_that_is_silent_for_too_long_is_lost() {
        let start = crate::Start { producer: Some(crate::Producer::External), ..request(G1) };
        let mut world = given([]);
        world.command(crate::Command::Start(start)).unwrap();
        world.producer_heard = world.now;
        let silent = world.now.after(world.rules.producer_silence);
        assert_eq!(world.next(), Next::WakeAt(silent), "nothing is called here");
        world.now = silent;
        assert_eq!(world.next(), Next::Observe(Report::ProducerSilent { generation: G1.into() }));
    }

    #[test]
    fn x3_a_worker_has_its_time_from_the_turn_on_however_long_it_waited() {
        let start = crate::Start { producer: Some(crate::Producer::External), ..request(G2) };
        let queued = crate::Start { when_busy: crate::WhenBusy::Queue, ..start };
        let mut world = given([running(G1)]);
        world.command(crate::Command::Start(queued)).unwrap();
        world.producer_heard = world.now;
        world = world.later(Duration::from_secs(60 * 60));
        world.command(cancel(G1)).unwrap();
        world.settle();
        assert_eq!(world.generation(G2).phase, Phase::Running);
        let turn = world.generation(G2).started_at.unwrap();
        assert_eq!(world.next(), Next::WakeAt(turn.after(world.rules.producer_silence)));
    }
}
