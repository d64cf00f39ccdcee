//! What an operator decides about running generations.

use std::time::Duration;

use outlast_core::{Durability, Retention, Rules};

/// The engine's settings. Each is honoured; none has a silent fall-back.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the rules of the core depend on.
    pub rules: Rules,
    /// When events reach the disk.
    pub durability: Durability,
    /// How many of the last messages a model is given.
    pub history_messages: usize,
    /// No byte from the upstream for this long ends an attempt.
    pub upstream_idle: Duration,
    /// How long events are kept.
    pub retention: Retention,
    /// Generations of one user under way at the same time.
    pub live_generations_per_user: usize,
    /// Generations of all users under way at the same time.
    pub live_generations: usize,
    /// Readers of one conversation at the same time.
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
