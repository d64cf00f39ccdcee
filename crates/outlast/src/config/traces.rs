//! `[traces]`: where traces of generations are sent.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use super::http_tools::HeaderSource;
use crate::traces::Collector;

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TracesSection {
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    url: Option<String>,
    #[cfg_attr(test, serde(skip_serializing))]
    headers: BTreeMap<String, HeaderSource>,
}

impl TracesSection {
    /// `None` if no traces are wanted.
    pub(crate) fn collector(&self) -> anyhow::Result<Option<Collector>> {
        let Some(url) = &self.url else {
            if !self.headers.is_empty() {
                bail!("traces.headers is set, but traces.url is not");
            }
            return Ok(None);
        };
        // Without the URL, which may contain a secret.
        let parsed = Url::parse(url).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
        let url = parsed.context("traces.url: not an http or https URL")?.into();
        let mut headers = HeaderMap::new();
        for (name, source) in &self.headers {
            let wrong = |why: &str| anyhow::anyhow!("traces.headers: {name}: {why}");
            let value = source.read().map_err(|why| wrong(&why))?;
            let header = HeaderName::try_from(name).map_err(|_| wrong("not the name of a header"))?;
            let mut value = HeaderValue::try_from(value.expose())
                .map_err(|_| wrong("the value has characters that a header cannot have"))?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        Ok(Some(Collector { url, headers }))
    }
}
