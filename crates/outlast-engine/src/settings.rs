//! The settings of the engine.

use std::time::Duration;

use outlast_core::{Durability, Retention, Rules};

use crate::notifications::NotificationSettings;
use crate::tools::Toolbox;

#[derive(Clone, Debug)]
pub struct Settings {
    pub rules: Rules,
    /// The tools that `rules` speak of.
    pub toolbox: Toolbox,
    /// When events reach the disk.
    pub durability: Durability,
    /// How many of the newest messages a model is given.
    pub history_messages: usize,
    /// An attempt fails if the upstream sends nothing for this long.
    pub upstream_idle: Duration,
    /// The longest that a tool call in a sandbox may ask to run.
    pub tool_timeout_max: Duration,
    pub retention: Retention,
    pub notifications: NotificationSettings,
    /// Live generations of one user.
    pub live_generations_per_user: usize,
    /// Live generations of all users.
    pub live_generations: usize,
    /// Concurrent followers of one conversation.
    pub followers_per_conversation: usize,
    /// For how long an instance keeps what it holds when nothing is heard of it.
    pub lease: Duration,
    /// How often it renews its lease.
    pub renew: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Settings {
            rules: Rules::default(),
            toolbox: Toolbox::default(),
            durability: Durability::Commit,
            history_messages: 10,
            upstream_idle: Duration::from_secs(300),
            tool_timeout_max: Duration::from_secs(60 * 60),
            retention: Retention { completed: 7 * DAY, error: 30 * DAY },
            notifications: NotificationSettings::default(),
            live_generations_per_user: 20,
            live_generations: 10_000,
            followers_per_conversation: 1_000,
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(5),
        }
    }
}
