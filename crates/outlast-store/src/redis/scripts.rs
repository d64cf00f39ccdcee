//! The scripts that run inside Redis. Each is atomic and short; what could take long is done in steps.

use redis::Script;

const COMMON: &str = include_str!("lua/common.lua");
const ITEMS: &str = include_str!("lua/items.lua");

/// All scripts, with their hashes.
pub(super) struct Scripts {
    pub(super) append: Script,
    pub(super) claim: Script,
    pub(super) release: Script,
    pub(super) renew: Script,
    pub(super) leave: Script,
    pub(super) long_gone: Script,
    pub(super) others: Script,
    pub(super) raise_fences: Script,
    pub(super) send: Script,
    pub(super) forget: Script,
    pub(super) mail: Script,
    pub(super) mail_waiting: Script,
    pub(super) read: Script,
    pub(super) load: Script,
    pub(super) get: Script,
    pub(super) list: Script,
    pub(super) trim: Script,
    pub(super) delete: Script,
    pub(super) remove: Script,
    pub(super) put_item: Script,
    pub(super) get_item: Script,
    pub(super) list_items: Script,
    pub(super) remove_item: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            append: writing(include_str!("lua/append.lua")),
            claim: writing(include_str!("lua/claim.lua")),
            release: writing(include_str!("lua/release.lua")),
            renew: writing(include_str!("lua/renew.lua")),
            leave: writing(include_str!("lua/leave.lua")),
            long_gone: reading(include_str!("lua/long_gone.lua")),
            others: reading(include_str!("lua/others.lua")),
            raise_fences: writing(include_str!("lua/raise_fences.lua")),
            send: writing(include_str!("lua/send.lua")),
            forget: writing(include_str!("lua/forget.lua")),
            mail: reading(include_str!("lua/mail.lua")),
            mail_waiting: reading(include_str!("lua/mail_waiting.lua")),
            read: reading(include_str!("lua/read.lua")),
            load: reading(include_str!("lua/load.lua")),
            get: reading(include_str!("lua/get.lua")),
            list: reading(include_str!("lua/list.lua")),
            trim: writing(include_str!("lua/trim.lua")),
            delete: writing(include_str!("lua/delete.lua")),
            remove: writing(include_str!("lua/remove.lua")),
            put_item: writing(&format!("{ITEMS}{}", include_str!("lua/put_item.lua"))),
            get_item: reading(&format!("{ITEMS}{}", include_str!("lua/get_item.lua"))),
            list_items: reading(&format!("{ITEMS}{}", include_str!("lua/list_items.lua"))),
            remove_item: writing(&format!("{ITEMS}{}", include_str!("lua/remove_item.lua"))),
        }
    }
}

// The first line makes Redis judge the whole script before it begins: out of memory, a full disk or a replica
// refuse it, and nothing was written. Without that line Redis would judge each command, in the middle.
fn writing(script: &str) -> Script {
    Script::new(&format!("#!lua\n{COMMON}{script}"))
}

/// Such a script also runs when Redis has no memory left.
fn reading(script: &str) -> Script {
    Script::new(&format!("#!lua flags=no-writes\n{COMMON}{script}"))
}
