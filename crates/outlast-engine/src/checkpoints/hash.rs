//! The name of a blob: BLAKE3 of its content.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// 64 hexadecimal digits in JSON and in paths, 32 bytes in the index of a workspace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    pub fn of(content: &[u8]) -> ContentHash {
        blake3::hash(content).into()
    }

    pub(super) fn parse(digits: &str) -> Option<ContentHash> {
        // The other notation of the same hash would be a second name for one blob.
        let lower = !digits.bytes().any(|digit| digit.is_ascii_uppercase());
        blake3::Hash::from_hex(digits).ok().filter(|_| lower).map(ContentHash::from)
    }
}

impl From<blake3::Hash> for ContentHash {
    fn from(hash: blake3::Hash) -> Self {
        ContentHash(hash.into())
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from(self.0).to_hex())
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ContentHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for ContentHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return <[u8; 32]>::deserialize(deserializer).map(ContentHash);
        }
        let digits = String::deserialize(deserializer)?;
        ContentHash::parse(&digits).ok_or_else(|| D::Error::custom("not a BLAKE3 hash in lower-case hex"))
    }
}
