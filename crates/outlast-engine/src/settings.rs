//! The settings of the engine.

use std::time::Duration;

use outlast_core::{Durability, Retention, Rules};

#[derive(Clone, Debug)]
pub struct Settings {
    pub rules: Rules,
    /// When events reach the disk.
    pub durability: Durability,
    /// How many of the newest messages a model is given.
    pub history_messages: usize,
    /// An attempt fails if the upstream sends nothing for this long.
    pub upstream_idle: Duration,
    pub retention: Retention,
    /// Live generations of one user.
    pub live_generations_per_user: usize,
    /// Live generations of all users.
    pub live_generations: usize,
    /// Concurrent followers of one conversation.
    pub followers_per_conversation: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Settings {
            rules: Rules::default(),
            durability: Durability::Commit,
            history_messages: 10,
            upstream_idle: Duration::from_secs(300),
            retention: Retention { completed: 7 * DAY, error: 30 * DAY },
            live_generations_per_user: 20,
            live_generations: 10_000,
            followers_per_conversation: 1_000,
        }
    }
}
