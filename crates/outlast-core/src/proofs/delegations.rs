//! A parent and two children, any of which dies at any step: each child's work is done once, the result goes back
//! once, and the parent's answer is right.

use std::collections::BTreeMap;

use serde_json::json;

use crate::testing::*;
use crate::{
    Brief, CancelReason, ChildEnd, ChildNews, Command, Decide, Decided, Decision, Delegation, Effect, Event,
    ExecutionId, GenerationStatus, NotificationKind, Parent, Phase, Piece, Recovery, Refusal, Report, Rules,
    Seq, Start, ToolRules, delegation_of,
};

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Dies {
    Parent,
    Children,
    All,
}

struct Family {
    parent: World,
    children: BTreeMap<ExecutionId, World>,
}

fn rules(recovery: Recovery) -> Rules {
    let tools: ToolRules = tools().into_iter().chain(tools_for_sub_agents()).collect();
    Rules { tools, recovery, max_depth: 1, ..Rules::default() }
}

fn started(generation: &str, recovery: Recovery, parent: Option<Parent>) -> World {
    let asked = request(generation);
    let rules = rules(recovery);
    let parent = parent.map(Box::new);
    let brief = Brief { tools: rules.tools.keys().cloned().collect(), parent, ..asked.brief };
    let mut world = World::new().with(rules);
    world.command(Command::Start(Start { brief, ..asked })).unwrap();
    world
}

/// The next answer of a model, as a whole.
fn answer(world: &mut World, calls: Vec<Piece>, done: &str) {
    let end = if calls.is_empty() { finished() } else { wants_tools() };
    let said = vec![words(if calls.is_empty() { done } else { "Let me see. " })];
    world.model([said, calls].concat(), Some(end));
}

fn round(world: &World) -> u32 {
    world.transcript.state.active().map_or(0, |active| active.progress.rounds.round)
}

fn task(id: &str) -> Piece {
    Piece::ToolCall { id: id.into(), name: "delegate".into(), input: json!({"task": id}) }
}

impl Family {
    fn new(recovery: Recovery) -> Family {
        Family { parent: started(G1, recovery, None), children: BTreeMap::new() }
    }

    fn recorded(&self) -> usize {
        self.parent.log.len() + self.children.values().map(|child| child.log.len()).sum::<usize>()
    }

    /// One thing happens. False at the end.
    fn advance(&mut self) -> bool {
        self.pass_on_cancels();
        if self.parent.step() || self.start_child() {
            return true;
        }
        let keys: Vec<ExecutionId> = self.children.keys().cloned().collect();
        if keys.iter().any(|key| self.advance_child(key)) {
            return true;
        }
        if self.parent.call.is_some() {
            let first = round(&self.parent) == 1;
            let calls = if first { vec![task("c1"), task("c2")] } else { vec![] };
            answer(&mut self.parent, calls, "Both are done.");
            return true;
        }
        self.resume() || self.decide(&keys)
    }

    fn pass_on_cancels(&mut self) {
        for effect in self.parent.next().effects {
            if let Effect::CancelChild { execution, .. } = effect
                && let Some(child) = self.children.get_mut(&execution)
                && let Some(active) = child.transcript.state.active()
            {
                let generation = active.id.clone();
                child.command(Command::Cancel { generation }).unwrap();
            }
        }
    }

    fn start_child(&mut self) -> bool {
        for effect in self.parent.next().effects {
            let Effect::Delegate { generation, execution } = effect else { continue };
            if self.children.contains_key(&execution) {
                continue; // a second start is the same request
            }
            let begun = self.parent.generation(G1).execution(&execution).expect("recorded before it starts");
            let parent = Parent {
                conversation_id: "conv_parent".into(),
                generation_id: generation,
                tool_use_id: begun.tool_use_id.clone(),
                execution_id: execution.clone(),
                depth: 1,
            };
            let id = if begun.tool_use_id.starts_with("c1") { G2 } else { G3 };
            let mut child = started(id, self.parent.rules.recovery, Some(parent));
            (child.notifies, child.unwatched_since) = (self.parent.notifies, self.parent.unwatched_since);
            self.children.insert(execution, child);
            return true;
        }
        false
    }

    fn advance_child(&mut self, key: &ExecutionId) -> bool {
        let child = self.children.get_mut(key).unwrap();
        if child.step() || self.tell_parent(key) {
            return true;
        }
        let child = self.children.get_mut(key).unwrap();
        if child.call.is_none() {
            return false;
        }
        let plan = json!({"plan": ["write", "remove"], "openTasks": ["remove"]});
        let plan = Piece::ToolCall { id: "p".into(), name: "update_plan".into(), input: plan };
        let calls = match round(child) {
            1 => vec![plan, call("w", "write", "a")],
            2 => vec![call("r", "rm", "b")],
            _ => vec![],
        };
        answer(child, calls, "Written and removed.");
        true
    }

    fn tell_parent(&mut self, key: &ExecutionId) -> bool {
        let Some((news, seq)) = self.news(key) else { return false };
        let child = self.children.get_mut(key).unwrap();
        let report = match self.parent.command(Command::ChildChanged(news)) {
            Ok(()) => Report::ParentTold { seq },
            Err(refusal) => {
                assert_eq!(refusal, Refusal::NotDelegated);
                Report::ParentGone
            }
        };
        assert_ne!(child.report(report), 0);
        true
    }

    fn news(&self, key: &ExecutionId) -> Option<(ChildNews, Seq)> {
        let child = &self.children[key];
        let tells = |effect: Effect| match effect {
            Effect::TellParent { seq, .. } => Some(seq),
            _ => None,
        };
        let seq = child.next().effects.into_iter().find_map(tells)?;
        let (parent, state) = delegation_of(&child.transcript.state)?;
        let said = child.shown().pop().unwrap_or_default();
        let end = match state.status {
            GenerationStatus::Completed => Some(ChildEnd { result: said, is_error: false }),
            GenerationStatus::Cancelled | GenerationStatus::Error => {
                Some(ChildEnd { result: "stopped".into(), is_error: true })
            }
            _ => None,
        };
        let news =
            ChildNews { execution: parent.execution_id, conversation: "conv_child".into(), state, end };
        Some((news, seq))
    }

    fn resume(&mut self) -> bool {
        let worlds = std::iter::once(&mut self.parent).chain(self.children.values_mut());
        for world in worlds {
            let active = world.transcript.state.active().map(|active| (active.id.clone(), active.status()));
            if let Some((id, GenerationStatus::Interrupted)) = active {
                world.command(resume(id.as_str())).unwrap();
                return true;
            }
        }
        false
    }

    /// A person decides in the parent, and the decision goes to the child.
    fn decide(&mut self, keys: &[ExecutionId]) -> bool {
        let Some(run) = self.parent.transcript.state.active() else { return false };
        let Some(question) = run.questions().next().cloned() else { return false };
        assert!(
            self.parent.next().is_nothing() || keys.len() == 2,
            "a parent whose children wait does nothing"
        );
        let decided = Decided {
            decision: Decision::Approve,
            by: "ann".into(),
            reason: None,
            always: false,
            pattern: None,
        };
        let (generation, tool_use_id, hash) = (G1.into(), question.id.clone(), Some(question.hash.clone()));
        let decide = Decide { generation, tool_use_id, hash, decided };
        let refused = self.parent.command(Command::Decide(decide.clone())).unwrap_err();
        assert_eq!(refused, Refusal::AskedByChild(Box::new(question.clone())));
        let (generation, tool_use_id) = (question.generation_id.clone(), question.tool_use_id);
        let is_asked =
            |child: &&mut World| child.transcript.state.generation(&question.generation_id).is_some();
        let child = self.children.values_mut().find(is_asked).unwrap();
        child.command(Command::Decide(Decide { generation, tool_use_id, ..decide })).unwrap();
        true
    }

    fn crash(&mut self, dies: Dies) {
        if dies != Dies::Children {
            self.parent.crash();
        }
        for child in self.children.values_mut().filter(|_| dies != Dies::Parent) {
            child.crash();
        }
    }
}

fn live(recovery: Recovery, death: Option<(usize, Dies)>) -> Family {
    let mut family = Family::new(recovery);
    let mut death = death;
    for _ in 0..2_000 {
        if let Some((_, dies)) = death.take_if(|(place, _)| *place <= family.recorded()) {
            family.crash(dies);
        }
        if !family.advance() {
            return family;
        }
    }
    panic!("it never ends: {:#?}", family.parent.log)
}

fn check(family: &Family, said: &str) {
    assert_eq!(family.parent.generation(G1).status(), GenerationStatus::Completed, "{said}");
    assert_eq!(family.children.len(), 2, "{said}");
    for child in family.children.values() {
        assert!(matches!(
            child.transcript.state.current.as_ref().unwrap().progress.phase,
            Phase::Completed { .. }
        ));
        assert!(child.outside.ran.len() == 2 && child.outside.ran.values().all(|runs| *runs == 1), "{said}");
    }
    let results = |entry: &&crate::Entry| matches!(entry.event, Event::ToolEnd { .. });
    assert_eq!(family.parent.log.iter().filter(results).count(), 2, "{said}: each result once");
    for call in ["c1", "c2"] {
        let result = family.parent.result_of(call).unwrap();
        assert!(result.starts_with("Written and removed."), "{said}: {result}");
    }
    assert_eq!(family.parent.transcript.state.children.len(), 2, "{said}");
}

#[test]
fn p4_whoever_dies_at_whatever_step_each_childs_work_is_done_once_and_the_answer_is_right() {
    let mut runs = 0;
    for recovery in [Recovery::Safe, Recovery::Ask] {
        let whole = live(recovery, None);
        check(&whole, "nobody dies");
        for place in 0..=whole.recorded() {
            for dies in [Dies::Parent, Dies::Children, Dies::All] {
                check(&live(recovery, Some((place, dies))), &format!("{recovery:?} {place} {dies:?}"));
                runs += 1;
            }
        }
    }
    println!("p4: {runs} runs of a parent and two children, each with one death");
}

/// A family whose children both wait for a person.
fn waiting() -> Family {
    until_both_ask(Family::new(Recovery::Safe))
}

fn until_both_ask(mut family: Family) -> Family {
    for _ in 0..500 {
        let asked = family.parent.transcript.state.active().map_or(0, |run| run.questions().count());
        if asked == 2 {
            return family;
        }
        assert!(family.advance());
    }
    panic!("nobody asks");
}

#[test]
fn p4_a_parent_whose_children_wait_for_a_person_waits_too_and_shows_their_questions() {
    let family = waiting();
    let run = family.parent.generation(G1);
    assert_eq!(run.status(), GenerationStatus::AwaitingApproval);
    assert!(family.parent.next().is_nothing(), "{:?}", family.parent.next());
    assert_eq!(crate::due(&family.parent.transcript.state, &family.parent.rules), None);
    let shown = &family.parent.view().active_run.unwrap().delegations;
    assert_eq!((shown.len(), shown[0].state.memory.plan.len()), (2, 2));
}

#[test]
fn i9_p4_a_cancel_follows_the_link_and_a_child_that_is_not_wanted_cancels_itself() {
    let mut family = waiting();
    family.parent.command(cancel(G1)).unwrap();
    while family.advance() {}
    assert!(family.parent.transcript.state.owed_stops.is_empty());
    for child in family.children.values() {
        let phase = &child.transcript.state.current.as_ref().unwrap().progress.phase;
        assert!(matches!(phase, Phase::Cancelled { reason: CancelReason::User }), "{phase:?}");
        assert!(!child.next().effects.iter().any(|effect| matches!(effect, Effect::TellParent { .. })));
    }
    // One that started too late hears that nobody waits for it.
    let (key, parent) = {
        let child = family.children.values().next().unwrap();
        let parent = child.transcript.state.parent().cloned().unwrap();
        (parent.execution_id.clone(), parent)
    };
    family.children.insert(key.clone(), started(G2, Recovery::Safe, Some(parent)));
    while family.advance() {}
    let late = family.children[&key].transcript.state.current.as_ref().unwrap();
    assert_eq!(late.progress.phase, Phase::Cancelled { reason: CancelReason::ParentEnded });
}

#[test]
fn p4_news_that_arrive_late_replace_nothing_newer() {
    let mut family = waiting();
    let run = family.parent.generation(G1);
    let execution = run.progress.rounds.executions[0].id.clone();
    let known = run.execution(&execution).and_then(|run| run.child.clone()).unwrap();
    let (status, approvals) = (GenerationStatus::Running, Vec::new());
    let old = Delegation { seq: Seq(1), status, approvals, ..known.state };
    let (conversation, before) = (known.conversation, family.parent.log.len());
    let news = ChildNews { execution, conversation, state: old, end: None };
    family.parent.command(Command::ChildChanged(news)).unwrap();
    assert_eq!(family.parent.log.len(), before);
}

#[test]
fn b6_p4_what_a_child_asks_is_owed_once_and_by_its_parent() {
    let mut family = Family::new(Recovery::Safe);
    (family.parent.notifies, family.parent.unwatched_since) = (true, Some(family.parent.now));
    let family = until_both_ask(family);
    let owed = |world: &World| {
        let kind = |entry: &crate::Entry| match &entry.event {
            Event::NotificationOwed { kind, tool_use_id, .. } => Some((*kind, tool_use_id.clone())),
            _ => None,
        };
        world.log.iter().filter_map(kind).collect::<Vec<_>>()
    };
    let [(NotificationKind::Approval, Some(asked))] = &owed(&family.parent)[..] else { panic!("owed once") };
    assert!(family.parent.generation(G1).questions().any(|question| question.id == *asked));
    assert!(family.children.values().all(|child| owed(child).is_empty()));
}

#[test]
fn p4_depth_and_number_of_sub_agents_are_limited_and_nobody_writes_to_a_child() {
    let mut family = waiting();
    let (_, child) = family.children.pop_first().unwrap();
    let refused = child.clone().command(Command::Start(request(G1))).unwrap_err();
    assert!(matches!(refused, Refusal::BelongsToParent { .. }));
    let parent = child.transcript.state.parent().cloned();
    let mut deep = started(G2, Recovery::Safe, parent);
    deep.settle();
    deep.model(vec![task("d")], Some(wants_tools()));
    deep.settle();
    assert!(deep.result_of("d").unwrap().contains("no sub-agent may be started"));
    let mut broad = started(G1, Recovery::Safe, None);
    broad.rules.max_children = 2;
    broad.model(vec![task("a"), task("b"), task("c")], Some(wants_tools()));
    broad.settle();
    assert_eq!(broad.running(), ["a", "b"]);
    assert!(broad.result_of("c").unwrap().contains("as many sub-agents as it may"));
}

#[test]
fn p4_a_resumed_parent_is_told_what_its_children_are_doing() {
    let mut family = Family::new(Recovery::Ask);
    while family.parent.generation(G1).children().count() < 2 {
        assert!(family.advance());
    }
    family.parent.crash();
    family.parent.settle();
    family.parent.command(resume(G1)).unwrap();
    family.parent.settle();
    let told = family.parent.shown();
    let told = told.iter().find(|said| said.starts_with("[SESSION_RESUMED]")).unwrap();
    assert!(told.contains("Sub-agent of call c1") && told.contains("\"plan\""), "{told}");
}
