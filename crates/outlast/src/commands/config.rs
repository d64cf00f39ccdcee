//! `outlast config`: prints or checks the settings.

use clap::Subcommand;

use super::say;
use crate::cli::SettingsFlags;
use crate::config::default_file;

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a settings file with every setting, its meaning and its default.
    Default,
    /// Print the settings that a server would use and where each comes from. Secrets are not shown.
    Show,
    /// Check the settings without starting anything.
    Check,
}

impl ConfigCommand {
    pub(crate) fn run(&self, settings: &SettingsFlags) -> anyhow::Result<()> {
        match self {
            ConfigCommand::Default => say(default_file().trim_end()),
            ConfigCommand::Show => say(settings.load()?.show().trim_end()),
            ConfigCommand::Check => {
                settings.load()?.check()?;
                say(
                    "The settings are valid. `outlast doctor` also checks the store, the sandbox and the models.",
                );
            }
        }
        Ok(())
    }
}
