//! `[e2b]`: sandboxes at E2B, for `sandbox.kind = "e2b"`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use outlast_engine::Secret;
use outlast_engine::sandbox::E2bSettings;
use serde::Deserialize;

use super::tools::Sandbox;

/// E2B's timeout is this much longer than ours, so that ours is the one that counts.
const GRACE: Duration = Duration::from_secs(5 * 60);
/// What E2B allows every account.
const LIFETIME_MAX: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct E2bSection {
    api_key_env: String,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    api_key_file: Option<PathBuf>,
    template: String,
    domain: String,
    user: String,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    api_url: Option<String>,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    sandbox_url: Option<String>,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    program: Option<PathBuf>,
}

impl Default for E2bSection {
    fn default() -> E2bSection {
        let settings = E2bSettings::new(Secret::new(""), PathBuf::new());
        E2bSection {
            api_key_env: "E2B_API_KEY".to_owned(),
            api_key_file: None,
            template: settings.template,
            domain: settings.domain,
            user: settings.user,
            api_url: None,
            sandbox_url: None,
            program: None,
        }
    }
}

impl E2bSection {
    /// `idle` is how long a sandbox may be idle before it is paused.
    pub(super) fn settings(&self, sandbox: &Sandbox, idle: Duration) -> anyhow::Result<E2bSettings> {
        sandbox.only_for_local().map_err(anyhow::Error::msg)?;
        let variable = self.api_key_file.is_none().then_some(self.api_key_env.as_str());
        let key = crate::models::key_of(variable, self.api_key_file.as_deref()).context("e2b")?;
        let Some(key) = key else { bail!("e2b.api_key_env or e2b.api_key_file must name a key") };
        for (name, url) in [("api_url", &self.api_url), ("sandbox_url", &self.sandbox_url)] {
            if url.as_ref().is_some_and(|url| !url.starts_with("https://") && !url.starts_with("http://")) {
                bail!("e2b.{name} must begin with https:// or http://");
            }
        }
        let own = std::env::current_exe().context("cannot find this program's own file")?;
        let mut settings = E2bSettings::new(Secret::new(key), self.program.clone().unwrap_or(own));
        settings.template.clone_from(&self.template);
        settings.domain.clone_from(&self.domain);
        settings.user.clone_from(&self.user);
        settings.api_url.clone_from(&self.api_url);
        settings.sandbox_url.clone_from(&self.sandbox_url);
        settings.lifetime = (idle + GRACE).min(LIFETIME_MAX);
        settings.output_bytes = sandbox.settings().output_bytes;
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use crate::config::{Config, Sources};

    fn start(settings: &str) -> Result<(), String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "{settings}").unwrap();
        let config = Config::load(Sources::of_file(file.path())).map_err(|error| format!("{error:#}"))?;
        config.e2b().map(drop).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn settings_that_cannot_work_at_e2b_are_refused() {
        let mut key = tempfile::NamedTempFile::new().unwrap();
        write!(key, "e2b_canary").unwrap();
        let file = format!("[e2b]\napi_key_file = {:?}\n", key.path());
        start(&format!("sandbox.kind = \"e2b\"\n{file}")).unwrap();
        for (settings, told) in [
            (
                "sandbox.kind = \"e2b\"\n[e2b]\napi_key_env = \"OUTLAST_NO_SUCH_KEY\"".to_owned(),
                "OUTLAST_NO_SUCH_KEY",
            ),
            (format!("sandbox = {{ kind = \"e2b\", memory = \"1GiB\" }}\n{file}"), "sandbox.memory"),
            (format!("sandbox = {{ kind = \"e2b\", network = \"host\" }}\n{file}"), "sandbox.network"),
            (format!("sandbox.kind = \"e2b\"\n{file}api_url = \"e2b.app\""), "e2b.api_url"),
            (format!("sandbox.kind = \"e2b\"\n{file}api_key = \"e2b_canary\""), "api_key"),
        ] {
            let error = start(&settings).unwrap_err();
            assert!(error.contains(told) && !error.contains("canary"), "{error}");
        }
    }
}
