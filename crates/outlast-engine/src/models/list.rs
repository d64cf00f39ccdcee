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
    /// Only models with their own limit.
    idle: BTreeMap<String, Duration>,
    /// How many bytes of messages a model is given; only models with a limit.
    context_bytes: BTreeMap<String, usize>,
}

impl Models {
    /// The model called `default` is used when a request names none.
    pub fn new(by_name: BTreeMap<String, Arc<dyn Model>>) -> Models {
        Models { by_name, idle: BTreeMap::new(), context_bytes: BTreeMap::new() }
    }

    /// Sets how long these models may be silent before an attempt fails, instead of the common limit.
    #[must_use]
    pub fn with_idle(self, idle: BTreeMap<String, Duration>) -> Models {
        Models { idle, ..self }
    }

    /// Sets how many bytes of messages these models are given. Beyond that, the oldest results of tools are left out.
    #[must_use]
    pub fn with_context_bytes(self, context_bytes: BTreeMap<String, usize>) -> Models {
        Models { context_bytes, ..self }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.by_name.keys().cloned().collect()
    }

    /// The name of the model to use for a request.
    pub(crate) fn resolve(&self, asked: Option<&str>) -> Result<String, EngineError> {
        let name = asked.unwrap_or("default");
        match self.by_name.get_key_value(name) {
            Some((name, _)) => Ok(name.clone()),
            None => Err(EngineError::UnknownModel { asked: name.to_owned(), known: self.names() }),
        }
    }

    /// How long a model may be silent, if it has its own limit.
    pub(crate) fn idle(&self, name: &str) -> Option<Duration> {
        self.idle.get(name).copied()
    }

    /// How many bytes of messages a model is given, if that is limited.
    pub(crate) fn context_bytes(&self, name: &str) -> Option<usize> {
        self.context_bytes.get(name).copied()
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
