//! What an operator decides about sandboxes at E2B.

use std::path::PathBuf;
use std::time::Duration;

use crate::models::Secret;

/// Domains whose sandboxes are all behind one host.
const HOSTED: &[&str] = &["e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev"];
/// The port of the server inside a sandbox.
pub(super) const ENVD_PORT: u16 = 49_983;

#[derive(Clone, Debug)]
pub struct E2bSettings {
    pub api_key: Secret,
    /// The template of new sandboxes.
    pub template: String,
    /// Where sandboxes are reached.
    pub domain: String,
    /// The control API; by default `https://api.` and the domain.
    pub api_url: Option<String>,
    /// The servers inside all sandboxes, instead of the address that follows from the domain.
    pub sandbox_url: Option<String>,
    /// The user in the template that tools run as.
    pub user: String,
    /// This program for Linux on x86-64. It is uploaded if the template does not have it.
    pub program: PathBuf,
    /// E2B pauses a sandbox by itself if nobody has used it for this long, in case no server is there to do it.
    pub lifetime: Duration,
    /// What one execution may write to stdout and stderr together.
    pub output_bytes: u64,
    /// How long E2B may take to respond.
    pub patience: Duration,
}

impl E2bSettings {
    pub fn new(api_key: Secret, program: PathBuf) -> E2bSettings {
        E2bSettings {
            api_key,
            program,
            template: "base".to_owned(),
            domain: "e2b.app".to_owned(),
            api_url: None,
            sandbox_url: None,
            user: "user".to_owned(),
            lifetime: Duration::from_secs(20 * 60),
            output_bytes: 64 * 1024 * 1024,
            patience: Duration::from_secs(60),
        }
    }

    pub(super) fn api(&self) -> String {
        let default = || format!("https://api.{}", self.domain);
        self.api_url.clone().map_or_else(default, |url| url.trim_end_matches('/').to_owned())
    }

    /// The server inside a sandbox. `domain` is what E2B said when it created the sandbox.
    pub(super) fn envd(&self, sandbox: &str, domain: Option<&str>) -> String {
        let domain = domain.unwrap_or(&self.domain);
        match &self.sandbox_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None if HOSTED.contains(&domain) => format!("https://sandbox.{domain}"),
            None => format!("https://{ENVD_PORT}-{sandbox}.{domain}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_sandbox_follows_from_its_domain_unless_the_operator_says_otherwise() {
        let mut settings = E2bSettings::new(Secret::new("e2b_00"), PathBuf::new());
        assert_eq!(settings.api(), "https://api.e2b.app");
        assert_eq!(settings.envd("i1", None), "https://sandbox.e2b.app");
        assert_eq!(settings.envd("i1", Some("own.example")), "https://49983-i1.own.example");
        settings.sandbox_url = Some("http://127.0.0.1:1/".to_owned());
        assert_eq!(settings.envd("i1", Some("own.example")), "http://127.0.0.1:1");
        assert!(!format!("{settings:?}").contains("e2b_00"));
    }
}
