//! A model that plays scripts, for tests and simulations.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{StreamExt, unfold};
use outlast_core::{Context, Failure, Piece, TextKind};
use serde_json::Value;

use super::{Arrived, Model, ModelStream};

/// What one call does, step by step.
pub type Script = Vec<Step>;

#[derive(Clone, Debug)]
pub enum Step {
    Say(String),
    /// Calls a tool.
    Call {
        id: String,
        name: String,
        input: Value,
    },
    Wait(Duration),
    Fail(Failure),
    Finish,
}

/// Plays one script per call, and then repeats the last one.
#[derive(Debug)]
pub struct ScriptedModel {
    scripts: Mutex<Vec<Script>>,
    calls: AtomicUsize,
    /// Each call that has not been dropped holds a copy.
    live: Arc<()>,
}

impl ScriptedModel {
    pub fn new(scripts: Vec<Script>) -> ScriptedModel {
        ScriptedModel { scripts: Mutex::new(scripts), calls: AtomicUsize::new(0), live: Arc::default() }
    }

    /// A model that always says these words, with a pause before each.
    pub fn saying(words: &[&str], pause: Duration) -> ScriptedModel {
        let mut script: Script = Vec::new();
        for word in words {
            script.push(Step::Wait(pause));
            script.push(Step::Say((*word).to_owned()));
        }
        script.push(Step::Finish);
        ScriptedModel::new(vec![script])
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// How many calls are under way, or are still held although they have ended.
    pub fn live(&self) -> usize {
        Arc::strong_count(&self.live) - 1
    }
}

impl Model for ScriptedModel {
    fn call(&self, _context: Context) -> ModelStream {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let scripts = self.scripts.lock().expect("no test panics while it holds the lock");
        let script = scripts.get(call).or(scripts.last()).cloned().unwrap_or_default();
        unfold((script.into_iter(), self.live.clone()), |(mut steps, live)| async move {
            loop {
                let arrived = match steps.next()? {
                    Step::Wait(pause) => {
                        tokio::time::sleep(pause).await;
                        continue;
                    }
                    Step::Say(text) => {
                        Ok(Arrived::Piece(Piece::Text { kind: TextKind::Answer, text, chunks: 1 }))
                    }
                    Step::Call { id, name, input } => Ok(Arrived::Piece(Piece::ToolCall { id, name, input })),
                    Step::Fail(failure) => Err(failure),
                    Step::Finish => Ok(Arrived::Finished { reason: "stop".to_owned() }),
                };
                return Some((arrived, (steps, live)));
            }
        })
        .boxed()
    }
}
