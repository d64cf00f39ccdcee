use std::collections::BTreeMap;

use outlast_core::{Place, Policy};

use super::load::Sources;
use super::*;

fn environment(pairs: &[(&str, &str)]) -> Sources<'static> {
    let environment = pairs.iter().map(|(name, value)| (name.into(), value.into())).collect();
    Sources { environment, ..Sources::default() }
}

fn load(pairs: &[(&str, &str)]) -> anyhow::Result<Config> {
    Config::load(environment(pairs))
}

fn load_file(text: &str) -> anyhow::Result<Config> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Config::load(Sources::of_file(file.path()))
}

fn load_flags(flags: &[&str]) -> anyhow::Result<Config> {
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    Config::load(Sources { flags: &flags, ..Sources::default() })
}

fn told<T: std::fmt::Debug>(result: anyhow::Result<T>) -> String {
    let error = format!("{:#}", result.unwrap_err());
    assert!(!error.contains('\n'), "more than one line: {error}");
    error
}

#[test]
fn b7_the_environment_can_set_every_level() {
    let config = load(&[
        ("OUTLAST_STORE__URL", "memory:"),
        ("OUTLAST_MODELS__DEFAULT__KIND", "openai"),
        ("OUTLAST_MODELS__DEFAULT__BASE_URL", "http://127.0.0.1:1/v1"),
        ("OUTLAST_MODELS__DEFAULT__MODEL", "m"),
        ("OUTLAST_TIMEOUTS__UNWATCHED", "90s"),
        ("OUTLAST_LIMITS__LIVE_GENERATIONS_PER_USER", "3"),
        ("OUTLAST_FAULT", "not a setting"),
    ])
    .unwrap();
    assert_eq!(config.store.url, "memory:");
    assert_eq!(config.engine().unwrap().rules.unwatched, Duration::from_secs(90));
    assert_eq!(config.limits.live_generations_per_user, 3);
    assert!(matches!(&config.models["default"], ModelConfig::Openai(upstream) if upstream.model == "m"));
}

#[test]
fn b7_every_setting_can_be_a_flag() {
    let config = load_flags(&[
        "limits.body_bytes=65536",
        "store.url=memory:",
        "timeouts.unwatched = \"90s\"",
        "models.\"gpt-4.1\".kind=openai",
        "models.\"gpt-4.1\".model=\"4\"",
        "models.\"gpt-4.1\".headers={ X-Title = \"Tea\" }",
        "server.allowed_hosts=[\"chat.example.com\", \"*.team.example\"]",
        "history.messages=1",
        "history.messages=2",
    ])
    .unwrap();
    assert_eq!(config.limits.body_bytes, 65536);
    assert_eq!(config.store.url, "memory:");
    assert_eq!(config.engine().unwrap().rules.unwatched, Duration::from_secs(90));
    assert_eq!(config.engine().unwrap().history_messages, 2, "the last one wins");
    let ModelConfig::Openai(upstream) = &config.models["gpt-4.1"] else { panic!("{config:?}") };
    assert!(upstream.model == "4" && upstream.headers.contains_key("X-Title"));
}

#[test]
fn b7_flags_override_the_environment_which_overrides_the_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[limits]\nbody_bytes = 1\nanswer_bytes = 1\nlive_generations = 1").unwrap();
    let flags = ["limits.body_bytes=3".to_owned()];
    let mut sources =
        environment(&[("OUTLAST_LIMITS__BODY_BYTES", "2"), ("OUTLAST_LIMITS__ANSWER_BYTES", "2")]);
    sources.file = Some(file.path());
    let config = Config::load(Sources { flags: &flags, ..sources }).unwrap();
    let Limits { body_bytes, answer_bytes, live_generations, .. } = config.limits;
    assert_eq!((live_generations, answer_bytes, body_bytes), (1, 2, 3));
}

#[test]
fn b7_an_unknown_key_or_a_bad_value_is_named_wherever_it_was_given() {
    for (key, value) in [
        ("store.uri", "memory:"),
        ("stoer.url", "memory:"),
        ("limits.body_bytes", "many"),
        ("limits.body_bytes", "-1"),
        ("timeouts.unwatched", "90"),
        ("timeouts.unwatched", "soon"),
        ("server.listen", "8787"),
        ("server.allowed_hosts", "https://chat.example.com"),
        ("server.allowed_hosts", "7"),
        ("durability.mode", "hope"),
        ("models.default.kind", "oracle"),
    ] {
        let error = told(load_flags(&[&format!("{key}={value}")]));
        let named = match key {
            "stoer.url" => "stoer",
            "models.default.kind" => "models.default",
            key => key,
        };
        assert!(error.contains(named), "--set {key}={value}: {error}");
        let variable = format!("OUTLAST_{}", key.replace('.', "__").to_uppercase());
        let error = told(load(&[(&variable, value)]));
        assert!(error.contains(named), "{variable}={value}: {error}");
        let error = told(load_file(&format!("{key} = {value:?}")));
        assert!(error.contains(named), "{key} = {value:?}: {error}");
    }
    for flag in ["limits.body_bytes", "=1", "a b=1", "limits.=1", "limits.body_bytes.more=1", "limits=1"] {
        told(load_flags(&[flag]));
    }
}

#[test]
fn b7_a_setting_that_was_renamed_is_refused_with_its_new_name() {
    for (old, new) in [
        ("limits.subscribers_per_generation=5", "limits.followers_per_conversation"),
        ("timeouts.producer_silence=30s", "timeouts.worker_silence"),
    ] {
        let error = told(load_flags(&[old]));
        assert!(error.contains(new), "{error}");
    }
}

#[test]
fn b7_settings_for_tools_become_rules() {
    let config = load_file(
        "[sandbox]\nkind = \"local\"\nmemory = \"1GiB\"\n[timeouts]\napproval_pause = \"1m\"\n[tools.bash]\npolicy = \"deny\"\n\
         [[tools.bash.rules]]\nmatch = { command = \"git *\" }\npolicy = \"allow\"",
    );
    let rules = config.unwrap().engine().unwrap().rules;
    assert_eq!(rules.approval_pause, Duration::from_secs(60));
    let bash = &rules.tools["bash"];
    assert_eq!((bash.policy, bash.rules.len(), bash.read_only), (Policy::Deny, 1, false));
    assert_eq!(rules.tools["read_file"].policy, Policy::Allow);
}

#[test]
fn b7_a_tool_that_there_is_not_is_refused_by_name() {
    let config = load_file("[tools.bsh]\npolicy = \"allow\"").unwrap();
    assert!(config.engine().unwrap_err().starts_with("tools.bsh: unknown tool; the tools are bash, "));
    let choices = "{a,b}".repeat(7);
    let rule = format!("[[tools.bash.rules]]\nmatch = {{ command = \"{choices}\" }}\npolicy = \"deny\"");
    let wrong = load_file(&rule).unwrap().engine().unwrap_err();
    assert!(wrong.starts_with("tools.bash.rules: ") && wrong.contains("more than 64"), "{wrong}");
}

#[test]
fn x4_http_tools_become_rules_that_ask_a_person() {
    let config = load_file(
        "[http_tools.weather]\nurl = \"https://example.com/\"\nmethod = \"GET\"\nread_only = true\n\
         headers = { Authorization = { env = \"PATH\" } }\nschema = { type = \"object\" }\n\
         [http_tools.pay]\nurl = \"https://example.com/pay\"\nidempotent = true\n[tools.pay]\npolicy = \"deny\"",
    );
    let config = config.unwrap();
    let rules = config.engine().unwrap().rules.tools;
    let said =
        |name: &str| (rules[name].place, rules[name].read_only, rules[name].idempotent, rules[name].policy);
    assert_eq!(said("weather"), (Place::Elsewhere, true, false, Policy::Ask));
    assert_eq!(said("pay"), (Place::Elsewhere, false, true, Policy::Deny));
    let toolbox = crate::toolbox::open(&config).unwrap();
    assert_eq!(toolbox.spec("weather").unwrap().parameters.unwrap()["type"], "object");
}

#[test]
fn x4_an_http_tool_that_cannot_work_stops_the_start_and_no_key_is_shown() {
    for (settings, said) in [
        (
            "[http_tools.bash]\nurl = \"https://a.test/\"",
            "http_tools.bash: another tool already has this name",
        ),
        ("[http_tools.\"a b\"]\nurl = \"https://a.test/\"", "http_tools.a b: a tool's name"),
        ("[http_tools.a]\nurl = \"http://a.test/\"", "https://"),
        ("[http_tools.a]\nurl = \"https://10.0.0.1/\"", "not allowed"),
        ("[http_tools.a]\nurl = \"https://a.test/\"\nschema = 1", "JSON schema"),
        (
            "[http_tools.a]\nurl = \"https://a.test/\"\nheaders = { X = \"sk-canary\\n\" }",
            "X is not a valid header",
        ),
        (
            "[http_tools.a]\nurl = \"https://a.test/\"\nheaders = { X = { env = \"NOT_SET_canary\" } }",
            "not set",
        ),
    ] {
        let config = load_file(settings).unwrap();
        let opened =
            config.engine().and_then(|_| crate::toolbox::open(&config).map_err(|error| format!("{error:#}")));
        let error = opened.unwrap_err();
        assert!(error.contains(said) && !error.contains("canary"), "{settings}: {error}");
    }
}

#[test]
fn i14_a_value_in_the_wrong_place_is_not_repeated() {
    let error = told(load_file("[server]\napi_key = sk-canary\n"));
    assert!(error.contains("line 2, column 11") && !error.contains("canary"), "{error}");
    let error =
        told(load_file("[models.default]\nkind = \"openai\"\nmodel = \"m\"\nheaders = \"sk-\\\"canary\""));
    assert!(error.contains("models.default") && !error.contains("canary"), "{error}");
    let error = told(load(&[("OUTLAST_MODELS__DEFAULT", "sk-canary")]));
    assert!(error.contains("models.default") && !error.contains("canary"), "{error}");
    for key in ["limits.body_bytes", "timeouts.unwatched", "server.listen"] {
        let error = told(load_flags(&[&format!("{key}=sk-canary")]));
        assert!(error.contains(key) && !error.contains("canary"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn i14_a_variable_that_is_not_text_is_named_without_its_value() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    let canary = || OsString::from_vec(b"sk-canary\xff".to_vec());
    let ours = vec![("OUTLAST_STORE__URL".into(), canary())];
    let error = told(Config::load(Sources { environment: ours, ..Sources::default() }));
    assert!(error.contains("OUTLAST_STORE__URL") && !error.contains("canary"), "{error}");
    let foreign = vec![("SOMEBODYS_KEY".into(), canary()), (canary(), "1".into())];
    Config::load(Sources { environment: foreign, ..Sources::default() }).unwrap();
}

/// The rows of the table in `docs/settings.md`: setting and default.
fn documented() -> BTreeMap<String, String> {
    let mut rows = BTreeMap::new();
    for row in documented::rows() {
        let default = row.default.trim_matches('`').to_owned();
        assert!(rows.insert(row.name.to_owned(), default).is_none(), "twice: {}", row.name);
    }
    rows
}

/// Every setting that has a default, as `section.name`.
fn defaults() -> BTreeMap<String, String> {
    let tree = toml::Table::try_from(Config::default()).unwrap();
    let mut rows = BTreeMap::new();
    for (section, values) in tree {
        for (name, value) in values.as_table().unwrap() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            rows.insert(format!("{section}.{name}"), text);
        }
    }
    rows
}

/// The names of a model's settings, from the message that lists them.
fn model_fields(kind: &str) -> Vec<String> {
    let error = told(load_flags(&[&format!("models.x={{ kind = \"{kind}\", model = \"m\", unknown = 1 }}")]));
    let known = error.split_once("expected").unwrap().1;
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Settings that are absent by default, each with a value that is accepted.
const WITHOUT_DEFAULT: [(&str, &str); 17] = [
    ("server.public_url", "server.public_url=https://chat.example.com"),
    ("tls.certificate", "tls.certificate=cert.pem"),
    ("tls.key", "tls.key=key.pem"),
    ("sandbox.cpu", "sandbox.cpu=1.5"),
    ("e2b.api_key_file", "e2b.api_key_file=/run/secrets/e2b"),
    ("e2b.api_url", "e2b.api_url=https://api.e2b.example.com"),
    ("e2b.sandbox_url", "e2b.sandbox_url=https://sandbox.e2b.example.com"),
    ("e2b.program", "e2b.program=/opt/outlast"),
    ("agent.max_tokens", "agent.max_tokens=1000"),
    ("agent.max_time", "agent.max_time=1h"),
    ("limits.tokens_per_day_per_user", "limits.tokens_per_day_per_user=1000"),
    ("limits.tokens_per_day_per_key", "limits.tokens_per_day_per_key=1000"),
    ("limits.tokens_per_day", "limits.tokens_per_day=1000"),
    ("traces.url", "traces.url=http://127.0.0.1:4318/v1/traces"),
    ("traces.headers", "traces.headers={ a = \"b\" }"),
    ("tools.<name>.policy", "tools.bash.policy=allow"),
    ("tools.<name>.rules", "tools.bash.rules=[{ match = { command = \"ls\" }, policy = \"allow\" }]"),
];

#[test]
fn b7_the_documented_settings_and_defaults_match_the_code() {
    let (models, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        documented().into_iter().partition(|(name, _)| name.starts_with("models."));
    let (jwt, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        others.into_iter().partition(|(name, _)| name.starts_with("jwt."));
    let (optional, others): (BTreeMap<_, _>, BTreeMap<_, _>) = others
        .into_iter()
        .partition(|(name, _)| WITHOUT_DEFAULT.iter().any(|(optional, _)| name == optional));
    let (http_tools, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        others.into_iter().partition(|(name, _)| name.starts_with("http_tools."));
    let (mcp, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        others.into_iter().partition(|(name, _)| name.starts_with("mcp."));
    assert_eq!(others, defaults());
    for (section, documented) in [("http_tools", http_tools), ("mcp", mcp)] {
        let error = told(load_flags(&[&format!("{section}.x={{ url = \"https://a.test/\", unknown = 1 }}")]));
        let fields: Vec<&str> =
            error.split_once("expected").unwrap().1.split('`').skip(1).step_by(2).collect();
        assert!(fields.len() == documented.len(), "{fields:?}");
        let has = |field: &&str| documented.contains_key(&format!("{section}.<name>.{field}"));
        assert!(fields.iter().all(has), "{fields:?}");
    }
    assert_eq!(optional.len(), WITHOUT_DEFAULT.len(), "{optional:?}");
    for (_, flag) in WITHOUT_DEFAULT {
        load_flags(&[flag]).unwrap_or_else(|error| panic!("{flag}: {error:#}"));
    }
    let error = told(load_flags(&["jwt.unknown=1"]));
    let fields: Vec<&str> = error.split_once("expected").unwrap().1.split('`').skip(1).step_by(2).collect();
    assert!(fields.len() == jwt.len(), "{fields:?}");
    assert!(fields.iter().all(|field| jwt.contains_key(&format!("jwt.{field}"))), "{fields:?}");
    let documented: Vec<&str> =
        models.keys().filter_map(|name| name.strip_prefix("models.<name>.")).collect();
    for kind in ["openai", "anthropic"] {
        for field in model_fields(kind) {
            assert!(documented.contains(&field.as_str()), "{field} is not in docs/settings.md");
        }
    }
    let known = [model_fields("openai"), vec!["kind".to_owned(), "pace".to_owned()]].concat();
    for name in documented {
        assert!(
            known.iter().any(|field| field == name),
            "docs/settings.md has {name}, which is not a setting"
        );
    }
}

#[test]
fn b7_the_printed_default_settings_are_the_defaults_and_explain_every_setting() {
    let printed = default_file();
    let table = |config: Config| toml::Table::try_from(config).unwrap();
    assert_eq!(table(load_file(&printed).unwrap()), table(Config::default()));
    for row in documented::rows().iter().filter(|row| !row.name.ends_with('>')) {
        let name = row.name.rsplit_once('.').unwrap().1;
        let set =
            printed.lines().any(|line| line.trim_start_matches("# ").starts_with(&format!("{name} = ")));
        assert!(set, "{name} is not in the printed settings");
    }
    for line in printed.lines() {
        assert!(line.chars().count() <= 120 && !line.contains('`') && !line.contains("]("), "{line}");
    }
}

#[test]
fn b7_a_bad_setting_in_a_file_is_named_with_its_line() {
    for (text, line, key) in [
        ("[store]\nuri = \"memory:\"", 2, "store.uri"),
        ("\n\n[stoer]\nurl = \"memory:\"", 3, "stoer"),
        ("[limits]\nconnections = 1\nbody_bytes = \"many\"", 3, "limits.body_bytes"),
        ("limits.body_bytes = -1", 1, "limits.body_bytes"),
        ("[limits]\nbody_bytes = true", 2, "limits.body_bytes"),
        ("[timeouts]\n# why\nunwatched = 90", 3, "timeouts.unwatched"),
        ("[models.default]\nkind = \"oracle\"", 2, "models.default.kind"),
        ("[models.\"a.b\"]\nkind = \"openai\"", 1, "models.a.b"),
        (
            "[[tools.bash.rules]]\nmatch = { command = \"ls\" }\npolicy = \"perhaps\"",
            3,
            "tools.bash.rules[0].policy",
        ),
        ("[jwt]\naudience = \"x\"", 1, "jwt"),
        ("[limits]\nsubscribers_per_generation = 5", 2, "limits.followers_per_conversation"),
    ] {
        let error = told(load_file(text));
        assert!(error.contains(&format!("line {line}: ")) && error.contains(key), "{text:?}: {error}");
    }
    let error = told(load(&[("OUTLAST_LIMITS__BODY_BYTES", "many")]));
    assert!(error.starts_with("OUTLAST_LIMITS__BODY_BYTES: "), "{error}");
    let error = told(load_flags(&["limits.body_bytes=many"]));
    assert!(error.starts_with("--set: "), "{error}");
}

#[test]
fn b7_the_settings_in_use_are_shown_with_their_origin_and_without_secrets() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "[store]\nurl = \"postgres://ann:sk-canary@db/outlast\"\n[models.default]\nkind = \"openai\"\n\
                model = \"m\"\nheaders = { X-Key = \"sk-canary\" }\n[limits]\nbody_bytes = 1\nconnections = 5";
    std::fs::write(file.path(), text).unwrap();
    let flags = ["limits.body_bytes=3".to_owned()];
    let mut sources = environment(&[("OUTLAST_LIMITS__BODY_BYTES", "2"), ("OUTLAST_RETRY__MAX", "7")]);
    sources.named.push(("--data", "server.data", "here".to_owned()));
    let config = Config::load(Sources { file: Some(file.path()), flags: &flags, ..sources }).unwrap();
    let shown = config.show();
    let line = |name: &str| {
        let line = shown.lines().find(|line| line.starts_with(&format!("{name} = ")));
        line.unwrap_or_else(|| panic!("{name} is missing: {shown}"))
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(line("limits.body_bytes"), "limits.body_bytes = 3 # --set");
    assert_eq!(line("retry.max"), "retry.max = 7 # OUTLAST_RETRY__MAX");
    assert_eq!(line("server.data"), "server.data = \"here\" # --data");
    assert_eq!(line("retry.backoff"), "retry.backoff = \"500ms\" # default");
    assert!(line("limits.connections").ends_with("line 9"), "{shown}");
    assert!(line("store.url").contains("postgres://ann:[redacted]@db/outlast"), "{shown}");
    assert!(!shown.contains("canary"), "{shown}");
    assert_eq!(shown.matches("limits.body_bytes").count(), 1, "{shown}");
}
