//! Opens the tools that do not run in the sandbox. With an invalid setting the server does not start.

use std::sync::Arc;

use anyhow::Context as _;
use outlast_engine::outside::{Outside, Walls};
use outlast_engine::tools::{HttpTool, McpServer, Toolbox};

use crate::config::Config;

pub(crate) fn open(config: &Config) -> anyhow::Result<Toolbox> {
    let mut toolbox = Toolbox::default();
    for (name, section) in &config.http_tools {
        let opened = || {
            let (allow_private, own_ports) = (section.allow_private, vec![config.server.listen.port()]);
            let outside = Outside::new(Walls { allow_private, own_ports })?;
            HttpTool::new(outside, section.settings(name)?)
        };
        let tool = opened().map_err(anyhow::Error::msg).with_context(|| format!("[http_tools.{name}]"))?;
        toolbox.add(Arc::new(tool));
    }
    for (name, section) in &config.mcp {
        let opened = section.settings(name, config.server.listen.port()).and_then(McpServer::new);
        let server = opened.map_err(anyhow::Error::msg).with_context(|| format!("[mcp.{name}]"))?;
        toolbox.add_server(Arc::new(server));
    }
    Ok(toolbox)
}
