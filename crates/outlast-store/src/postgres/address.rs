//! The store's URL: what PostgreSQL's own library understands, and what only Outlast does.

use std::path::PathBuf;

use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use super::connect::reason;
use crate::StoreError;

/// Where the database is and how to talk to it.
pub(super) struct Address {
    pub(super) config: Config,
    /// Whether a pooler may give every transaction another connection: `pooler=transaction`.
    pub(super) pooled: bool,
    /// Authorities to trust instead of the system's: `sslrootcert=/path/to/ca.pem`.
    pub(super) authorities: Option<PathBuf>,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let (mut pooled, mut authorities, mut verified) = (false, None, false);
        let (place, parameters) = url.split_once('?').unwrap_or((url, ""));
        let mut others = Vec::new();
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=').unwrap_or((parameter, "")) {
                ("pooler", "transaction") => pooled = true,
                ("pooler", _) => {
                    return Err(unusable("pooler can only be transaction"));
                }
                ("sslrootcert", path) => authorities = Some(PathBuf::from(path)),
                // Certificates are always verified, names included, so all of these mean the same.
                ("sslmode", "verify-full" | "verify-ca" | "require") => verified = true,
                _ => others.push(parameter),
            }
        }
        let url = if others.is_empty() { place.to_owned() } else { format!("{place}?{}", others.join("&")) };
        // The URL itself may hold a password, so the message does not repeat it.
        let mut config: Config =
            url.parse().map_err(|error: tokio_postgres::Error| unusable(&reason(&error)))?;
        if verified {
            config.ssl_mode(SslMode::Require);
        }
        if pooled && config.get_options().is_some() {
            return Err(unusable(
                "options cannot be used with pooler=transaction; set them for the database's user",
            ));
        }
        Ok(Self { config, pooled, authorities })
    }
}

fn unusable(why: &str) -> StoreError {
    StoreError::Broken(format!("the PostgreSQL URL cannot be used: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_outlast_are_taken_out_of_the_url() {
        let address =
            Address::parse("postgres://ann@h/d?pooler=transaction&target_session_attrs=read-write").unwrap();
        assert!(address.pooled && address.authorities.is_none());
        assert_eq!(address.config.get_dbname(), Some("d"));
        assert_eq!(address.config.get_ssl_mode(), SslMode::Prefer);
        assert!(!Address::parse("postgres://ann@h/d").unwrap().pooled);
    }

    #[test]
    fn a_certificate_is_required_where_the_url_says_so() {
        for mode in ["require", "verify-ca", "verify-full"] {
            let url = format!("postgres://ann@h/d?sslrootcert=/etc/ca.pem&sslmode={mode}");
            let address = Address::parse(&url).unwrap();
            assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
            assert_eq!(address.authorities, Some("/etc/ca.pem".into()));
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_without_the_password() {
        for url in [
            "postgres://ann:secret@h/d?pooler=session",
            "postgres://ann:secret@h/d?pooler=transaction&options=-csearch_path%3Da",
            "postgres://ann:secret@h/d?sslmode=maybe",
            "postgres://ann:secret@h/d?listens=no",
        ] {
            let why = Address::parse(url).map(|_| ()).unwrap_err().to_string();
            assert!(why.contains("PostgreSQL URL") && !why.contains("secret"), "{why}");
        }
    }
}
