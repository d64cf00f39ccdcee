//! A model that plays scripts, for tests and simulations.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{StreamExt, unfold};
use outlast_core::{Context, Failure, Piece, TextKind};
use serde_json::Value;

use super::{Arrived, Model, ModelStream};

/// What one call does, step by step.
pub type Script = Vec<Step>;

/// One step of a call.
#[derive(Clone, Debug)]
pub enum Step {
    /// Says something.
    Say(String),
    /// Asks for a tool.
    Call {
        /// Names the call.
        id: String,
        /// Which tool.
        name: String,
        /// Its arguments.
        input: Value,
    },
    /// Does nothing for a while.
    Wait(Duration),
    /// Breaks.
    Fail(Failure),
    /// Is done.
    Finish,
}

/// Plays one script per call, then the last one again and again.
#[derive(Debug)]
pub struct ScriptedModel {
    scripts: Mutex<Vec<Script>>,
    calls: AtomicUsize,
}

impl ScriptedModel {
    /// A model with these scripts.
    pub fn new(scripts: Vec<Script>) -> ScriptedModel {
        ScriptedModel { scripts: Mutex::new(scripts), calls: AtomicUsize::new(0) }
    }

    /// A model that always says these words, a pause before each.
    pub fn saying(words: &[&str], pause: Duration) -> ScriptedModel {
        let mut script: Script = Vec::new();
        for word in words {
            script.push(Step::Wait(pause));
            script.push(Step::Say((*word).to_owned()));
        }
        script.push(Step::Finish);
        ScriptedModel::new(vec![script])
    }

    /// How often it was called.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Model for ScriptedModel {
    fn call(&self, _context: Context) -> ModelStream {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let scripts = self.scripts.lock().expect("no test panics while it holds this");
        let script = scripts.get(call).or(scripts.last()).cloned().unwrap_or_default();
        unfold(script.into_iter(), |mut steps| async move {
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
                return Some((arrived, steps));
            }
        })
        .boxed()
    }
}
