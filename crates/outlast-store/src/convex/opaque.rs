//! Opaque bytes as text, because JSON has no bytes. Text stays readable.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;

use crate::StoreError;

/// A letter says which of the two follows.
const TEXT: &str = "t";
const BASE64: &str = "b";

pub(super) fn encode(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => format!("{TEXT}{text}"),
        Err(_) => format!("{BASE64}{}", BASE64_STANDARD.encode(bytes)),
    }
}

pub(super) fn decode(stored: &str) -> Result<Bytes, StoreError> {
    if let Some(text) = stored.strip_prefix(TEXT) {
        return Ok(Bytes::copy_from_slice(text.as_bytes()));
    }
    let bytes = stored.strip_prefix(BASE64).and_then(|text| BASE64_STANDARD.decode(text).ok());
    bytes.map(Bytes::from).ok_or_else(|| StoreError::Broken("mail in Convex cannot be read".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_come_back() {
        for bytes in [&b""[..], b"t", b"\0text", "世界".as_bytes(), b"\xff\x00"] {
            assert_eq!(decode(&encode(bytes)).unwrap(), bytes);
        }
        assert!(decode("").is_err() && decode("b!").is_err());
    }
}
