//! Sets up the models from the settings. With an invalid setting the server does not start, and one line names it.

use std::collections::BTreeMap;
use std::env::VarError;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use outlast_engine::{AnthropicModel, DemoModel, Model, Models, OpenAiModel, Secret, UpstreamSettings};

use crate::config::{Config, ModelConfig, Upstream};

/// The default address of OpenAI-compatible models.
const OPENROUTER: &str = "https://openrouter.ai/api/v1";
/// The default address of Anthropic's models.
const ANTHROPIC: &str = "https://api.anthropic.com";

/// The models by name. The demo model is used if none is called `default`.
pub(crate) fn open(configured: &BTreeMap<String, ModelConfig>) -> anyhow::Result<Models> {
    let mut by_name: BTreeMap<String, Arc<dyn Model>> = BTreeMap::new();
    let mut idle: BTreeMap<String, Duration> = BTreeMap::new();
    let mut context_bytes: BTreeMap<String, usize> = BTreeMap::new();
    for (name, config) in configured {
        let model = open_one(config).with_context(|| format!("[models.{name}]"))?;
        by_name.insert(name.clone(), model);
        let own_idle = config.upstream().and_then(|upstream| upstream.idle_timeout);
        idle.extend(own_idle.map(|idle| (name.clone(), idle)));
        let own_bytes = config.upstream().and_then(|upstream| upstream.context_bytes);
        context_bytes.extend(own_bytes.map(|bytes| (name.clone(), bytes)));
    }
    by_name.entry("default".to_owned()).or_insert_with(|| Arc::new(DemoModel::default()));
    by_name.entry("demo".to_owned()).or_insert_with(|| Arc::new(DemoModel::default()));
    Ok(Models::new(by_name).with_idle(idle).with_context_bytes(context_bytes))
}

/// The address of a model's upstream; `None` if the model is built in.
pub(crate) fn address<'a>(config: &'a Config, name: &str, model: &ModelConfig) -> Option<&'a str> {
    let usual = match model {
        ModelConfig::Demo { .. } => return None,
        ModelConfig::Openai(_) => OPENROUTER,
        ModelConfig::Anthropic(_) => ANTHROPIC,
    };
    Some(config.model_address(name).unwrap_or(usual))
}

fn open_one(model: &ModelConfig) -> anyhow::Result<Arc<dyn Model>> {
    match model {
        ModelConfig::Demo { pace: None } => Ok(Arc::new(DemoModel::default())),
        ModelConfig::Demo { pace: Some(pace) } => Ok(Arc::new(DemoModel::with_pace(*pace))),
        ModelConfig::Openai(upstream) => {
            let model = OpenAiModel::new(settings(upstream, OPENROUTER)?);
            Ok(Arc::new(model.map_err(anyhow::Error::msg)?))
        }
        ModelConfig::Anthropic(upstream) => {
            let model = AnthropicModel::new(settings(upstream, ANTHROPIC)?);
            Ok(Arc::new(model.map_err(anyhow::Error::msg)?))
        }
    }
}

fn settings(upstream: &Upstream, usual: &str) -> anyhow::Result<UpstreamSettings> {
    if upstream.model.trim().is_empty() {
        bail!("model is empty");
    }
    if upstream.max_tokens == Some(0) {
        bail!("max_tokens must be at least 1");
    }
    if upstream.context_bytes == Some(0) {
        bail!("context_bytes must be at least 1");
    }
    if upstream.idle_timeout == Some(Duration::ZERO) {
        bail!("idle_timeout must be longer than 0, or every call would time out at once");
    }
    Ok(UpstreamSettings {
        base_url: upstream.base_url.clone().unwrap_or_else(|| Secret::new(usual)),
        model: upstream.model.clone(),
        api_key: key_of(upstream.api_key_env.as_deref(), upstream.api_key_file.as_deref())?.map(Secret::new),
        headers: upstream.headers.clone(),
        max_tokens: upstream.max_tokens,
    })
}

/// Reads the key. No message repeats it, because even a mistyped key is a secret.
pub(crate) fn key_of(variable: Option<&str>, file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let (key, origin) = match (variable, file) {
        (None, None) => return Ok(None),
        (Some(name), None) => {
            let named = if looks_like_a_variable(name) { name } else { "something" };
            let key = match std::env::var(name) {
                Ok(key) => key,
                Err(VarError::NotPresent) => bail!(
                    "api_key_env names {named}, which is not set; give the name of a variable, not the key"
                ),
                Err(VarError::NotUnicode(_)) => bail!("api_key_env names {named}, which is not valid UTF-8"),
            };
            (key, format!("api_key_env names {named}"))
        }
        (None, Some(path)) => {
            // A path without a folder may be the key itself.
            let named =
                if path.components().count() > 1 { path.display().to_string() } else { "a file".into() };
            let unreadable = || format!("api_key_file names {named}, which cannot be read");
            let key = std::fs::read_to_string(path).with_context(unreadable)?;
            (key, format!("api_key_file names {named}"))
        }
        (Some(_), Some(_)) => bail!("api_key_env and api_key_file are both given; leave one out"),
    };
    match key.trim() {
        "" => bail!("{origin}, which is empty"),
        key => Ok(Some(key.to_owned())),
    }
}

/// Whether this looks like the name of a variable. Anything else may be the key itself and is not repeated.
fn looks_like_a_variable(name: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_uppercase() || letter == '_';
    name.starts_with(letter) && name.chars().all(|next| letter(next) || next.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::config::{Config, Sources};

    /// Opens one model with these settings. The error is what an operator sees.
    fn start(settings: &str) -> Result<(), String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "[models.main]\n{settings}").unwrap();
        let config = Config::load(Sources::of_file(file.path())).map_err(|error| format!("{error:#}"))?;
        open(&config.models).map(|_| ()).map_err(|error| format!("{error:#}"))
    }

    fn upstream(more: &str) -> Result<(), String> {
        start(&format!("kind = \"openai\"\nmodel = \"m\"\n{more}"))
    }

    #[test]
    fn b2_every_kind_of_model_can_be_set_up() {
        upstream("").unwrap();
        upstream("base_url = \"http://localhost:11434/v1\"\nmax_tokens = 100\nidle_timeout = \"10m\"")
            .unwrap();
        upstream("continuation = \"prefill\"\nheaders = { \"X-Title\" = \"Tea\" }").unwrap();
        start("kind = \"anthropic\"\nmodel = \"m\"").unwrap();
        start("kind = \"demo\"").unwrap();
    }

    #[test]
    fn b2_the_settings_in_the_docs_can_be_copied() {
        let text = include_str!("../../../docs/models.md");
        let block = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(block.as_bytes()).unwrap();
        let mut config = Config::load(Sources::of_file(file.path())).unwrap();
        assert!(config.models.len() >= 8, "{:?}", config.models.keys());
        for model in config.models.values_mut() {
            if let ModelConfig::Openai(upstream) | ModelConfig::Anthropic(upstream) = model {
                (upstream.api_key_env, upstream.api_key_file) = (None, None); // this machine has no keys
            }
        }
        open(&config.models).unwrap();
    }

    #[test]
    fn i14_a_key_in_place_of_its_name_is_not_repeated() {
        for (setting, key) in
            [("api_key_env", "sk-canary"), ("api_key_env", "gsk_canary1"), ("api_key_file", "sk-canary")]
        {
            let error = upstream(&format!("{setting} = {key:?}")).unwrap_err();
            assert!(error.contains(setting) && !error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn i14_no_message_repeats_the_password_of_a_mistyped_base_url() {
        for setting in [
            "base_url = \"https://me:canary@host/v1\"",
            "base_url = \"me:canary@host/v1\"",
            "base_url = \"https:/me:canary@host/v1\"",
            "base_url = \"https://me:canary@host:port/v1\"",
            "base_url = [\"https://me:canary@host/v1\"]",
            "base_url = https://me:canary@host/v1",
        ] {
            let error = upstream(setting).unwrap_err();
            assert!(!error.contains("canary") && error.len() > 10, "{setting}: {error}");
            let mut file = tempfile::NamedTempFile::new().unwrap();
            write!(file, "[models.main]\nkind = \"openai\"\nmodel = \"m\"\n{setting}").unwrap();
            let config = Config::load(crate::config::Sources::of_file(file.path()));
            assert!(!format!("{config:?}").contains("canary"), "{setting}: {config:?}");
        }
    }

    #[test]
    fn i14_the_settings_print_no_header() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "[models.main]\nkind = \"openai\"\nmodel = \"m\"\nheaders = {{ x = \"canary\" }}")
            .unwrap();
        let config = Config::load(Sources::of_file(file.path())).unwrap();
        assert!(!format!("{config:?}").contains("canary"), "a secret is in {config:?}");
    }

    #[test]
    fn b7_an_invalid_setting_stops_the_start_with_one_line_that_names_it() {
        let empty = tempfile::NamedTempFile::new().unwrap();
        let mut broken = tempfile::NamedTempFile::new().unwrap();
        write!(broken, "canary\u{7}key").unwrap();
        let wrong = [
            ("base_url = \"localhost\"".to_owned(), "base_url"),
            ("headers = { \"bad name\" = \"canary\" }".to_owned(), "bad name"),
            ("headers = { x = \"canary\\nkey\" }".to_owned(), "the value of x"),
            ("max_tokens = 0".to_owned(), "max_tokens"),
            ("context_bytes = 0".to_owned(), "context_bytes"),
            ("idle_timeout = \"0s\"".to_owned(), "idle_timeout"),
            ("continuation = \"sometimes\"".to_owned(), "sometimes"),
            ("api_key_env = \"OUTLAST_NO_SUCH_KEY\"".to_owned(), "OUTLAST_NO_SUCH_KEY"),
            ("api_key_file = \"/no/such/file\"".to_owned(), "/no/such/file"),
            ("api_key = \"sk-canary\"".to_owned(), "api_key"),
            ("max_tokens = \"sk-canary\"".to_owned(), "models.main"),
            (format!("api_key_file = {:?}", empty.path()), "which is empty"),
            (format!("api_key_file = {:?}", broken.path()), "the key has characters"),
            ("api_key_env = \"A\"\napi_key_file = \"b\"".to_owned(), "leave one out"),
            ("api_kye_env = \"A\"".to_owned(), "api_kye_env"),
        ];
        for (settings, named) in wrong {
            let error = upstream(&settings).unwrap_err();
            assert!(error.contains(named) && !error.contains("canary"), "{settings}: {error}");
        }
        let error = start("kind = \"openai\"\nmodel = \" \"").unwrap_err();
        assert!(error.contains("[models.main]") && error.contains("model is empty"), "{error}");
    }
}
