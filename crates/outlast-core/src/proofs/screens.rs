//! The six properties of conversations that belong to a screen, its sandbox and its history, with random histories.
//!
//! | | property | test |
//! |---|---|---|
//! | 1 | messages are in ascending order | `s7_1_…` |
//! | 2 | a sandbox that is there is reused, else one is made | `s7_2_…` |
//! | 3 | the history keeps role, content and order | `s7_3_…` |
//! | 4 | a summary of files has every path | `s7_…` in `files_summary/tests.rs` |
//! | 5 | the id of a new sandbox is stored | `s7_5_…` |
//! | 6 | summaries of files stay in the history | `s7_6_…` |

use proptest::prelude::*;

use crate::testing::*;
use crate::{
    Command, Recovery, Role, Rules, SandboxState, Sources, context, conversation_document, files_summary,
};

/// One thing that happens to a conversation.
#[derive(Clone, Debug)]
enum Step {
    /// A message whose answer uses tools.
    Work(String),
    /// A message whose answer is only text.
    Talk(String),
    /// Nobody says anything until the sandbox is paused, or removed.
    Idle,
    /// The machine of the sandbox goes away.
    Lose,
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => "[a-z \n]{1,12}".prop_map(Step::Work),
        2 => "[a-zA-Z<>é \n]{1,20}".prop_map(Step::Talk),
        2 => Just(Step::Idle),
        1 => Just(Step::Lose),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..10)
}

/// A conversation that lives through steps.
struct Screen {
    world: World,
    count: usize,
    /// What was said, as people saw it.
    said: Vec<(Role, String)>,
}

impl Screen {
    fn new() -> Screen {
        let rules = Rules { recovery: Recovery::Auto, ..agent_rules() };
        Screen { world: World::new().with(rules), count: 0, said: Vec::new() }
    }

    fn live(&mut self, step: &Step) {
        match step {
            Step::Work(text) => self.answer(text, true),
            Step::Talk(text) => self.answer(text, false),
            Step::Idle if crate::due(&self.world.transcript.state, &self.world.rules).is_some() => {
                self.world.wait_until_due();
            }
            Step::Idle => {}
            Step::Lose => self.world.outside.sandboxes.clear(),
            Step::Crash => {
                self.world.crash();
                self.world.settle();
            }
        }
    }

    fn answer(&mut self, text: &str, works: bool) {
        self.count += 1;
        let id = format!("gen_{}", self.count);
        self.world.command(Command::Start(agent_request(&id))).unwrap();
        if works {
            self.world.ask_for(&[(&format!("call_{}", self.count), "write", "a.rs")]);
        }
        self.world.model(vec![words(text)], Some(finished()));
        self.world.settle();
        let messages = &self.world.stored.messages;
        let of_it =
            messages.iter().filter(|message| message.generation_id.as_ref() == Some(&id.as_str().into()));
        self.said
            .extend(of_it.filter(|message| !message.content.is_empty()).map(|m| (m.role, m.content.clone())));
    }

    fn stored_sandbox(&self) -> Option<String> {
        self.world.stored.conversation.sandbox_id.clone()
    }

    /// The sandboxes that were made, in order, from the log.
    fn made(&self) -> Vec<String> {
        let made = |entry: &crate::Entry| match &entry.event {
            crate::Event::SandboxChanged {
                sandbox_id,
                state: SandboxState::Created | SandboxState::Restored,
                ..
            } => Some(sandbox_id.to_string()),
            _ => None,
        };
        self.world.log.iter().filter_map(made).collect()
    }

    /// What the model is given for one more message.
    fn history(&mut self, limit: usize) -> Vec<(Role, String)> {
        self.world.command(Command::Start(agent_request("gen_last"))).unwrap();
        let messages = &self.world.stored.messages;
        let sources = Sources { messages, limit, prompt: None, prefill: false, budget: None };
        let context = context(&self.world.transcript.state, self.world.generation("gen_last"), sources);
        context.messages.iter().map(|message| (message.role, message.text())).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s7_1_messages_are_in_ascending_order_of_their_time(steps in steps()) {
        let mut screen = Screen::new();
        for step in &steps {
            screen.live(step);
            let view = screen.world.view();
            let times: Vec<_> = view.messages.iter().map(|message| (message.created_at, message.seq)).collect();
            prop_assert!(times.is_sorted_by(|a, b| a.0 <= b.0 && a.1 < b.1), "{:?}", times);
            prop_assert_eq!(&view.messages, &screen.world.stored.messages);
        }
    }

    #[test]
    fn s7_2_a_sandbox_that_is_there_is_reused_and_else_one_is_made(steps in steps()) {
        let mut screen = Screen::new();
        for step in &steps {
            let (stored, made) = (screen.stored_sandbox(), screen.made());
            let is_there = |id: &String| screen.world.outside.sandboxes.contains_key(&id.as_str().into());
            let reuses = stored.as_ref().is_some_and(is_there);
            screen.live(step);
            let new = &screen.made()[made.len()..];
            match step {
                Step::Work(_) if reuses => {
                    prop_assert_eq!(new, &[] as &[String], "the one that is there is used");
                    prop_assert_eq!(screen.stored_sandbox(), stored);
                }
                Step::Work(_) => {
                    prop_assert_eq!(new.len(), 1, "one is made");
                    prop_assert!(!made.contains(&new[0]), "under a name of its own");
                    prop_assert_eq!(screen.stored_sandbox(), new.first().cloned());
                }
                Step::Talk(_) | Step::Idle | Step::Lose | Step::Crash => prop_assert_eq!(new, &[] as &[String]),
            }
        }
    }

    #[test]
    fn s7_3_the_history_has_role_and_content_in_order(steps in steps(), limit in 1..30_usize) {
        let mut screen = Screen::new();
        steps.iter().for_each(|step| screen.live(step));
        let mut expected = screen.said.clone();
        expected.push((Role::User, "question of gen_last".to_owned()));
        let expected = expected.split_off(expected.len().saturating_sub(limit));
        prop_assert_eq!(screen.history(limit), expected);
    }

    #[test]
    fn s7_5_the_id_of_a_new_sandbox_is_stored_and_read_back(steps in steps()) {
        let mut screen = Screen::new();
        for step in &steps {
            let made = screen.made().len();
            screen.live(step);
            if let Some(new) = screen.made().get(made) {
                prop_assert_eq!(screen.stored_sandbox(), Some(new.clone()));
            }
            // Whoever reads the log, or the stored state, finds the same.
            let again = World::recovered(&screen.world.log, &screen.world.rules);
            prop_assert_eq!(conversation_document(&again.transcript.state).sandbox_id, screen.stored_sandbox());
            let bytes = serde_json::to_vec(&screen.world.transcript.state).unwrap();
            let read: crate::Conversation = serde_json::from_slice(&bytes).unwrap();
            prop_assert_eq!(conversation_document(&read).sandbox_id, screen.stored_sandbox());
        }
    }

    #[test]
    fn s7_6_summaries_of_files_stay_in_the_history(steps in steps(), prose in "[a-z ]{1,20}", path in "[a-z/.]{1,12}") {
        let mut screen = Screen::new();
        let file = crate::DescribedFile { path, description: "The file".to_owned() };
        let block = files_summary(&[file]);
        screen.live(&Step::Talk(format!("{prose}\n\n{block}")));
        steps.iter().for_each(|step| screen.live(step));
        let summaries = |list: &[(Role, String)]| -> Vec<String> {
            list.iter().filter(|(_, text)| text.contains("<files_summary>")).map(|(_, text)| text.clone()).collect()
        };
        let (said, told) = (summaries(&screen.said), summaries(&screen.history(100)));
        prop_assert!(told[0].ends_with(&block), "{:?}", told);
        prop_assert_eq!(told, said);
    }
}
