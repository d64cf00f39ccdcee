//! The models by their names in the settings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Context, Failure, FailureClass};

use super::{Model, ModelStream};
use crate::error::CommandError;

/// Who can answer, and how long each may be silent.
pub struct Models {
    by_name: BTreeMap<String, Arc<dyn Model>>,
    /// Those that may be silent for longer or shorter than the rest.
    idle: BTreeMap<String, Duration>,
}

impl Models {
    /// Models by name; the one called `default` answers when none is asked for.
    pub fn new(by_name: BTreeMap<String, Arc<dyn Model>>) -> Models {
        Models { by_name, idle: BTreeMap::new() }
    }

    /// The same, but nothing from these models for so long ends an attempt, whatever holds for the rest.
    #[must_use]
    pub fn with_idle(self, idle: BTreeMap<String, Duration>) -> Models {
        Models { idle, ..self }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.by_name.keys().cloned().collect()
    }

    /// The name to record for what was asked.
    pub(crate) fn resolve(&self, asked: Option<&str>) -> Result<String, CommandError> {
        let name = asked.unwrap_or("default");
        match self.by_name.get_key_value(name) {
            Some((name, _)) => Ok(name.clone()),
            None => Err(CommandError::UnknownModel { asked: name.to_owned(), known: self.names() }),
        }
    }

    /// How long a model may be silent, if it differs from the rest.
    pub(crate) fn idle(&self, name: &str) -> Option<Duration> {
        self.idle.get(name).copied()
    }

    pub(crate) fn call(&self, name: &str, context: Context) -> ModelStream {
        match self.by_name.get(name) {
            Some(model) => model.call(context),
            None => {
                let message = format!("the model {name:?} is not in the settings any more");
                let failure = Failure { class: FailureClass::Invalid, message, retry_after: None };
                Box::pin(futures_util::stream::iter([Err(failure)]))
            }
        }
    }
}
