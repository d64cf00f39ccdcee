//! Tokens made by hand: good ones of each algorithm, and every bad one that a verifier was ever fooled by.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use aws_lc_rs::{hmac, rsa};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

const ISSUER: &str = "https://login.example";
const AUDIENCE: &str = "outlast";
const SECRET: &[u8] = b"a secret of at least thirty-two bytes";

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn now() -> i64 {
    Clock::System.now().0 / 1000
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now() + 600})
}

fn hs256(text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), text.as_bytes()).as_ref().to_vec()
}

/// The header is text, so that it can be what no serializer would write.
fn token(head: &str, claims: &Value, sign: impl Fn(&str) -> Vec<u8>) -> String {
    let text = format!("{}.{}", encode(head), encode(claims.to_string()));
    let signature = encode(sign(&text));
    format!("{text}.{signature}")
}

/// The keys of an issuer, and its public document.
struct Issuer {
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
    other_curve: EcdsaKeyPair,
    ed: Ed25519KeyPair,
    file: tempfile::NamedTempFile,
}

impl Issuer {
    fn new() -> Issuer {
        let rsa = RsaKeyPair::generate(rsa::KeySize::Rsa2048).unwrap();
        let ec = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let other_curve = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
        let ed = Ed25519KeyPair::generate().unwrap();
        let point = |key: &EcdsaKeyPair, crv: &str| {
            let bytes = key.public_key().as_ref();
            let (x, y) = bytes[1..].split_at((bytes.len() - 1) / 2);
            json!({"kty": "EC", "crv": crv, "kid": crv, "x": encode(x), "y": encode(y)})
        };
        let public = rsa.public_key();
        let keys = json!({"keys": [
            {"kty": "RSA", "kid": "rsa", "use": "sig", "alg": "RS256",
             "n": encode(public.modulus().big_endian_without_leading_zero()),
             "e": encode(public.exponent().big_endian_without_leading_zero())},
            point(&ec, "P-256"),
            point(&other_curve, "P-384"),
            {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": encode(ed.public_key().as_ref())},
            {"kty": "oct", "kid": "oct", "k": encode(SECRET)},
            {"kty": "RSA", "kid": "enc", "use": "enc",
             "n": encode(public.modulus().big_endian_without_leading_zero()),
             "e": encode(public.exponent().big_endian_without_leading_zero())},
        ]});
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), keys.to_string()).unwrap();
        Issuer { rsa, ec, other_curve, ed, file }
    }

    async fn jwt(&self) -> Jwt {
        let keys = Jwks::open(self.file.path().to_str().unwrap()).await.unwrap();
        Jwt::new(JwtOptions {
            issuer: ISSUER.to_owned(),
            audience: AUDIENCE.to_owned(),
            verifier: Verifier::Jwks(Arc::new(keys)),
            algorithms: vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA],
        })
    }

    fn rs256(&self, text: &str) -> Vec<u8> {
        let mut signature = vec![0; self.rsa.public_modulus_len()];
        self.rsa.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
        signature
    }

    fn es256(&self, text: &str) -> Vec<u8> {
        self.ec.sign(&SystemRandom::new(), text.as_bytes()).unwrap().as_ref().to_vec()
    }

    fn es384(&self, text: &str) -> Vec<u8> {
        self.other_curve.sign(&SystemRandom::new(), text.as_bytes()).unwrap().as_ref().to_vec()
    }

    fn eddsa(&self, text: &str) -> Vec<u8> {
        self.ed.sign(text.as_bytes()).as_ref().to_vec()
    }

    /// The public key as a program would have it that mistakes it for an HMAC secret.
    fn public_key_as_secret(&self, text: &str) -> Vec<u8> {
        let der = self.rsa.public_key().as_der().unwrap();
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, der.as_ref()), text.as_bytes()).as_ref().to_vec()
    }
}

fn with_secret() -> Jwt {
    Jwt::new(JwtOptions {
        issuer: ISSUER.to_owned(),
        audience: AUDIENCE.to_owned(),
        verifier: Verifier::Secret(DecodingKey::from_secret(SECRET)),
        algorithms: vec![Algorithm::HS256],
    })
}

async fn auth(jwt: Jwt) -> Auth {
    Auth::open(Arc::new(MemoryStore::new()), Clock::System, Some(jwt)).await.unwrap()
}

#[tokio::test]
async fn b5_tokens_of_every_algorithm_name_their_user_and_scopes() {
    let issuer = Issuer::new();
    let by_keys = auth(issuer.jwt().await).await;
    assert!(by_keys.is_required().await.unwrap(), "a login elsewhere makes a login necessary");
    let tokens = [
        token(r#"{"alg":"RS256","typ":"JWT","kid":"rsa"}"#, &claims(), |text| issuer.rs256(text)),
        token(r#"{"alg":"ES256","kid":"P-256"}"#, &claims(), |text| issuer.es256(text)),
        token(r#"{"alg":"EdDSA","kid":"ed"}"#, &claims(), |text| issuer.eddsa(text)),
    ];
    for token in tokens {
        let ada = by_keys.by_bearer(&token).await.unwrap();
        assert_eq!(ada.user().as_str(), "https://login.example|ada");
        assert!(ada.may(Scope::Approve) && !ada.may(Scope::Admin) && !ada.may(Scope::Produce));
    }
    let by_secret = auth(with_secret()).await;
    let mut narrow = claims();
    narrow["scope"] = json!("openid read produce approve");
    narrow["aud"] = json!(["other", AUDIENCE]);
    let token = token(r#"{"alg":"HS256"}"#, &narrow, hs256);
    let worker = by_secret.by_bearer(&token).await.unwrap();
    assert!(worker.may(Scope::Read) && worker.may(Scope::Produce));
    assert!(!worker.may(Scope::Approve) && !worker.may(Scope::Write), "a worker can never approve");
}

#[tokio::test]
async fn b5_every_bad_token_is_refused() {
    let issuer = Issuer::new();
    let by_keys = auth(issuer.jwt().await).await;
    let by_secret = auth(with_secret()).await;
    let rs = r#"{"alg":"RS256","kid":"rsa"}"#;
    let rsa = |head: &str, claims: &Value| token(head, claims, |text| issuer.rs256(text));
    let good = rsa(rs, &claims());
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let none = |head: &str| token(head, &claims(), |_| Vec::new());
    let bad = [
        ("alg none", none(r#"{"alg":"none"}"#)),
        ("alg None", none(r#"{"alg":"None","kid":"rsa"}"#)),
        ("no alg", none(r#"{"kid":"rsa"}"#)),
        ("empty signature", format!("{signed}.")),
        ("no signature", signed.to_owned()),
        ("truncated signature", format!("{signed}.{}", &signature[..signature.len() - 4])),
        ("a fourth part", format!("{good}.x")),
        (
            "HS256 with the public key",
            token(r#"{"alg":"HS256","kid":"rsa"}"#, &claims(), |text| issuer.public_key_as_secret(text)),
        ),
        ("HS256 with a published secret", token(r#"{"alg":"HS256","kid":"oct"}"#, &claims(), hs256)),
        ("RS256 that is HS256", token(rs, &claims(), hs256)),
        ("RS256 with an EC key", rsa(r#"{"alg":"RS256","kid":"P-256"}"#, &claims())),
        ("RS512 for a key of RS256", rsa(r#"{"alg":"RS512","kid":"rsa"}"#, &claims())),
        ("PS256 for a key of RS256", rsa(r#"{"alg":"PS256","kid":"rsa"}"#, &claims())),
        ("a key for encryption", rsa(r#"{"alg":"RS256","kid":"enc"}"#, &claims())),
        ("wrong curve", token(r#"{"alg":"ES256","kid":"P-384"}"#, &claims(), |text| issuer.es384(text))),
        ("another curve", token(r#"{"alg":"ES384","kid":"P-384"}"#, &claims(), |text| issuer.es384(text))),
        (
            "ES256 by the key of another",
            token(r#"{"alg":"ES256","kid":"P-256"}"#, &claims(), |_| vec![0; 64]),
        ),
        (
            "EdDSA by another kind of key",
            token(r#"{"alg":"EdDSA","kid":"ed"}"#, &claims(), |text| issuer.es256(text)),
        ),
        ("duplicate header", rsa(r#"{"alg":"none","alg":"RS256","kid":"rsa"}"#, &claims())),
        ("duplicate kid", rsa(r#"{"alg":"RS256","kid":"x","kid":"rsa"}"#, &claims())),
        ("crit", rsa(r#"{"alg":"RS256","kid":"rsa","crit":["exp"]}"#, &claims())),
        ("jku", rsa(r#"{"alg":"RS256","kid":"rsa","jku":"https://evil.example/keys"}"#, &claims())),
        ("x5u", rsa(r#"{"alg":"RS256","kid":"rsa","x5u":"https://evil.example/cert"}"#, &claims())),
        ("jwk", rsa(r#"{"alg":"RS256","jwk":{"kty":"oct","k":"AA"}}"#, &claims())),
        ("b64", rsa(r#"{"alg":"RS256","kid":"rsa","b64":false}"#, &claims())),
        ("kid with a path", rsa(r#"{"alg":"RS256","kid":"../../etc/passwd"}"#, &claims())),
        ("unknown kid", rsa(r#"{"alg":"RS256","kid":"none"}"#, &claims())),
        ("no kid among several keys", rsa(r#"{"alg":"RS256"}"#, &claims())),
        ("not base64", format!("{}.!.x", encode(rs))),
        ("not JSON", format!("{}.e30.x", encode("{"))),
        ("nothing", String::new()),
    ];
    assert!(by_keys.by_bearer(&good).await.is_ok());
    for (what, token) in &bad {
        for (place, auth) in [("keys", &by_keys), ("secret", &by_secret)] {
            // The two HS256 tokens are what a server with the secret would sign itself.
            if place == "secret" && what.starts_with("HS256 with a published") {
                continue;
            }
            assert!(is_invalid(&auth.by_bearer(token).await), "{what}, by {place}");
        }
    }
    assert!(is_invalid(&by_secret.by_bearer(&good).await), "RS256 where HS256 is pinned");
}

#[tokio::test]
async fn b5_a_token_with_bad_claims_is_refused_although_its_signature_is_good() {
    let issuer = Issuer::new();
    let auth = auth(issuer.jwt().await).await;
    let rs = r#"{"alg":"RS256","kid":"rsa"}"#;
    let with = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        claims
    };
    let without = |name: &str| {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove(name);
        claims
    };
    let rsa = |head: &str, claims: &Value| token(head, claims, |text| issuer.rs256(text));
    assert!(auth.by_bearer(&rsa(rs, &claims())).await.is_ok());
    let bad = [
        ("expired by a second", rsa(rs, &with("exp", json!(now() - 1)))),
        ("expires as text", rsa(rs, &with("exp", json!("soon")))),
        ("never expires", rsa(rs, &without("exp"))),
        ("not yet valid", rsa(rs, &with("nbf", json!(now() + 60)))),
        ("wrong audience", rsa(rs, &with("aud", json!("somebody else")))),
        ("no audience", rsa(rs, &without("aud"))),
        ("wrong issuer", rsa(rs, &with("iss", json!("https://login.example.evil")))),
        ("no issuer", rsa(rs, &without("iss"))),
        ("no subject", rsa(rs, &without("sub"))),
        ("empty subject", rsa(rs, &with("sub", json!("")))),
        ("subject with a newline", rsa(rs, &with("sub", json!("ada\nbob")))),
        ("subject too long", rsa(rs, &with("sub", json!("a".repeat(201))))),
        ("token too long", rsa(rs, &with("x", json!("a".repeat(10_000))))),
    ];
    for (what, token) in &bad {
        assert!(is_invalid(&auth.by_bearer(token).await), "{what}");
    }
}

#[tokio::test]
async fn b5_keys_and_tokens_work_side_by_side() {
    let items = Arc::new(MemoryStore::new());
    let auth = Auth::open(items.clone(), Clock::System, Some(with_secret())).await.unwrap();
    let key = key_of(&*items, "ada", "read").await;
    assert_eq!(auth.by_bearer(&key).await.unwrap().user().as_str(), "ada");
    let token = token(r#"{"alg":"HS256"}"#, &claims(), hs256);
    assert_ne!(
        auth.by_bearer(&token).await.unwrap().user().as_str(),
        "ada",
        "the issuer is part of the name"
    );
}

#[tokio::test]
async fn b5_keys_are_fetched_only_over_https_or_from_this_machine() {
    for place in ["http://login.example/keys", "ftp://127.0.0.1.evil/keys", "no/such/file"] {
        assert!(Jwks::open(place).await.is_err(), "{place}");
    }
    assert!(Jwks::open("https://login.example/keys").await.is_ok(), "fetched when needed");
}

#[tokio::test]
async fn b5_i18_tokens_with_unknown_keys_do_not_keep_others_waiting_for_a_slow_issuer() {
    let issuer = Issuer::new();
    let keys = std::fs::read_to_string(issuer.file.path()).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let jwks = Jwks::open(&url).await.unwrap();
    let answer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", keys.len());
        stream.write_all((head + &keys).as_bytes()).await.unwrap();
    };
    let good = || jwks.find(Some("rsa"), Algorithm::RS256);
    let (found, ()) = tokio::join!(good(), answer);
    assert!(found.unwrap().is_some());
    jwks.let_time_pass();
    // The second time the issuer accepts the connection and never responds.
    let unknown = jwks.find(Some("made up"), Algorithm::RS256);
    tokio::select! {
        _ = unknown => panic!("it waits for the issuer"),
        () = async {
            let _hangs = listener.accept().await.unwrap();
            for _ in 0..1_000 {
                assert!(good().await.unwrap().is_some());
            }
        } => {}
    }
}

/// A login elsewhere, for tests of routes.
pub(crate) struct Login(Issuer);

impl Login {
    pub(crate) fn new() -> Login {
        Login(Issuer::new())
    }

    pub(crate) async fn jwt(&self) -> Jwt {
        self.0.jwt().await
    }

    /// A token that is valid.
    pub(crate) fn good(&self) -> String {
        self.signed(&claims())
    }

    /// Tokens that every route must refuse.
    pub(crate) fn bad(&self) -> Vec<(&'static str, String)> {
        let with = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            claims
        };
        vec![
            ("an expired token", self.signed(&with("exp", json!(now() - 1)))),
            ("a token for another audience", self.signed(&with("aud", json!("another")))),
            ("a token of another issuer", self.signed(&with("iss", json!("https://evil.example")))),
            ("a token that is not valid yet", self.signed(&with("nbf", json!(now() + 60)))),
            ("alg none", token(r#"{"alg":"none"}"#, &claims(), |_| Vec::new())),
            (
                "the public key as a secret",
                token(r#"{"alg":"HS256","kid":"rsa"}"#, &claims(), |text| self.0.public_key_as_secret(text)),
            ),
            ("RS256 that is HS256", token(r#"{"alg":"RS256","kid":"rsa"}"#, &claims(), hs256)),
        ]
    }

    fn signed(&self, claims: &Value) -> String {
        token(r#"{"alg":"RS256","kid":"rsa"}"#, claims, |text| self.0.rs256(text))
    }
}
