//! The list of models, by their names in the settings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Context, Failure, FailureClass};

use super::{Model, ModelStream};
use crate::error::EngineError;

/// The models, and how long each may be silent.
pub struct Models {
    by_name: BTreeMap<String, Arc<dyn Model>>,
    /// Only of models with a limit of their own.
    idle: BTreeMap<String, Duration>,
}

impl Models {
    /// The model called `default` answers when a request names none.
    pub fn new(by_name: BTreeMap<String, Arc<dyn Model>>) -> Models {
        Models { by_name, idle: BTreeMap::new() }
    }

    /// Sets how long these models may be silent before an attempt fails, in place of the common limit.
    #[must_use]
    pub fn with_idle(self, idle: BTreeMap<String, Duration>) -> Models {
        Models { idle, ..self }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.by_name.keys().cloned().collect()
    }

    /// The name to record for the model that a request asks for.
    pub(crate) fn resolve(&self, asked: Option<&str>) -> Result<String, EngineError> {
        let name = asked.unwrap_or("default");
        match self.by_name.get_key_value(name) {
            Some((name, _)) => Ok(name.clone()),
            None => Err(EngineError::UnknownModel { asked: name.to_owned(), known: self.names() }),
        }
    }

    /// How long a model may be silent, if it has a limit of its own.
    pub(crate) fn idle(&self, name: &str) -> Option<Duration> {
        self.idle.get(name).copied()
    }

    pub(crate) fn call(&self, name: &str, context: Context) -> ModelStream {
        match self.by_name.get(name) {
            Some(model) => model.call(context),
            None => {
                let message = format!("the model {name:?} is no longer in the settings");
                let failure = Failure { class: FailureClass::Invalid, message, retry_after: None };
                Box::pin(futures_util::stream::iter([Err(failure)]))
            }
        }
    }
}
