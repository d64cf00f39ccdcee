//! A checkpoint as it is stored: listings of directories, each a blob that names the blobs below it, and a
//! record that names the root.
//!
//! All of it is read back from storage and not trusted: a listing that no workspace could have produced is refused before
//! any file is written.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use outlast_core::Timestamp;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::hash::ContentHash;
use super::limits::{CHUNK_BYTES, LISTING_BYTES_MAX, Limits, NAME_BYTES_MAX};
use super::{CheckpointError, LeftOut, Truth};

/// A file's name or a link's target: bytes, as Linux has them. Text in JSON where they are UTF-8, otherwise
/// an array of numbers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(pub(super) Box<[u8]>);

impl Name {
    pub(super) fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrBytes;
        impl<'de> Visitor<'de> for TextOrBytes {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name as text or as an array of bytes")
            }
            fn visit_str<E>(self, text: &str) -> Result<Name, E> {
                Ok(Name(text.as_bytes().into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<Name, A::Error> {
                let mut name = Vec::new();
                while let Some(byte) = bytes.next_element()? {
                    name.push(byte);
                }
                Ok(Name(name.into()))
            }
        }
        deserializer.deserialize_any(TextOrBytes)
    }
}

/// One line of a directory's listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) name: Name,
    /// Permission bits only; set-user-id and similar bits are dropped.
    pub(super) mode: u32,
    /// Nanoseconds since 1970.
    pub(super) modified: i64,
    pub(super) node: Node,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum Node {
    File(FileNode),
    Directory(ListingRef),
    Link { target: Name },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileNode {
    pub(super) size: u64,
    /// Of the whole content. Names the blob unless there are chunks; an empty file has no blob.
    pub(super) hash: ContentHash,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) chunks: Vec<ContentHash>,
}

/// A blob that belongs to a file, with the size it must have.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkRef {
    pub(super) hash: ContentHash,
    pub(super) size: u64,
}

impl FileNode {
    pub(super) fn blobs(&self) -> impl Iterator<Item = ChunkRef> + '_ {
        let chunk = CHUNK_BYTES as u64;
        let single = (self.chunks.is_empty() && self.size > 0).then_some(&self.hash);
        single
            .into_iter()
            .chain(&self.chunks)
            .enumerate()
            .map(move |(place, &hash)| ChunkRef { hash, size: (self.size - place as u64 * chunk).min(chunk) })
    }
}

/// Where a listing is, and how many bytes it has before compression.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListingRef {
    pub(super) hash: ContentHash,
    pub(super) size: u64,
}

/// The version of records and listings that this code writes, and the only one that it reads.
pub(super) const VERSION: u32 = 1;

/// A checkpoint's record. Small; everything else hangs below `root`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Record {
    pub(super) version: u32,
    pub(super) root: ListingRef,
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) taken_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) truth: Option<Truth>,
    #[serde(default, skip_serializing_if = "LeftOut::is_empty")]
    pub(super) left_out: LeftOut,
}

pub(super) fn encode_listing(entries: &[Entry]) -> Vec<u8> {
    serde_json::to_vec(entries).expect("a listing has no maps and no floats: it can be written as JSON")
}

/// Reads a listing and refuses what could not have been in a workspace. `depth` is that of the directory.
pub(super) fn decode_listing(
    bytes: &[u8],
    depth: usize,
    limits: &Limits,
) -> Result<Vec<Entry>, CheckpointError> {
    let entries: Vec<Entry> = serde_json::from_slice(bytes)
        .map_err(|error| CheckpointError::Damaged(format!("a listing cannot be read: {error}")))?;
    for pair in entries.windows(2) {
        if pair[0].name >= pair[1].name {
            return Err(refused(&pair[1], "is listed twice or out of order"));
        }
    }
    for entry in &entries {
        check_entry(entry, depth, limits)?;
    }
    Ok(entries)
}

fn check_entry(entry: &Entry, depth: usize, limits: &Limits) -> Result<(), CheckpointError> {
    if !is_plain_name(&entry.name.0) {
        return Err(refused(entry, "is not a plain file name"));
    }
    if entry.mode & !0o777 != 0 {
        return Err(refused(entry, "has more than permission bits in its mode"));
    }
    match &entry.node {
        Node::File(file) => {
            if file.size > limits.file_bytes {
                return Err(CheckpointError::limit(
                    format!("the size of {:?}", entry.name),
                    limits.file_bytes,
                ));
            }
            let chunks = file.size.div_ceil(CHUNK_BYTES as u64);
            let expected = if chunks > 1 { chunks } else { 0 };
            if file.chunks.len() as u64 != expected {
                return Err(refused(entry, "has chunks that do not fit its size"));
            }
        }
        Node::Directory(listing) => {
            if depth >= limits.depth {
                return Err(CheckpointError::limit("the depth of the tree", limits.depth));
            }
            if listing.size > LISTING_BYTES_MAX {
                return Err(CheckpointError::limit("the size of a listing", LISTING_BYTES_MAX));
            }
        }
        Node::Link { target } => {
            if !stays_inside(&target.0, depth) {
                return Err(refused(entry, "is a link that leaves the workspace"));
            }
        }
    }
    Ok(())
}

fn refused(entry: &Entry, why: &str) -> CheckpointError {
    CheckpointError::Damaged(format!("{:?} {why}", entry.name))
}

fn is_plain_name(name: &[u8]) -> bool {
    let relative = name.is_empty() || name == b"." || name == b"..";
    !relative && name.len() <= NAME_BYTES_MAX && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}

/// Whether a link in a directory at `depth` (0 is the workspace itself) leads to a place in the workspace.
///
/// `..` is allowed only at the start. After a name it could step out of another link's target instead of a directory, and
/// two harmless links together would lead outside.
pub(super) fn stays_inside(target: &[u8], depth: usize) -> bool {
    if target.is_empty() || target[0] == b'/' || target.contains(&0) || target.len() > 4_095 {
        return false;
    }
    let steps: Vec<&[u8]> =
        target.split(|&byte| byte == b'/').filter(|step| !step.is_empty() && *step != b".").collect();
    let up = steps.iter().take_while(|step| **step == b"..").count();
    up <= depth && !steps[up..].contains(&b"..".as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_inside_only_if_no_combination_of_links_leads_out() {
        let inside: [(&[u8], usize); 6] =
            [(b"a", 0), (b"./a//b", 0), (b"../a", 1), (b"../../a/b/", 2), (b"..", 1), (b"...", 0)];
        let outside: [(&[u8], usize); 8] = [
            (b"", 0),
            (b"/etc/passwd", 3),
            (b"..", 0),
            (b"../..", 1),
            (b"a/..", 3),
            (b"../a/../..", 3),
            (b"a\0b", 0),
            (b"./../a", 0),
        ];
        for (target, depth) in inside {
            assert!(stays_inside(target, depth), "{:?}", String::from_utf8_lossy(target));
        }
        for (target, depth) in outside {
            assert!(!stays_inside(target, depth), "{:?}", String::from_utf8_lossy(target));
        }
    }

    #[test]
    fn a_name_that_is_not_utf_8_survives_json() {
        for name in [b"plain".as_slice(), b"caf\xc3\xa9", b"\xff\xfe", b"new\nline"] {
            let name = Name(name.into());
            let json = serde_json::to_string(&name).unwrap();
            assert_eq!(serde_json::from_str::<Name>(&json).unwrap(), name, "{json}");
        }
    }
}
