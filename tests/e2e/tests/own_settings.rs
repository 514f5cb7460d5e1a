//! Servers of one list, each with its own token, certificate and transport.

use std::process::Command;

use outboard_e2e::{Driver, Folder, Outcome, Program, Server, command, outboard};
use serde_json::{Value, json};

/// A server that encrypts and wants to know its clients, and how one becomes one.
struct Strict {
    server: Server,
    fingerprint: String,
    token: String,
    state: Folder,
}

impl Strict {
    fn start() -> Strict {
        let state = Folder::create();
        let made = outboard(&[
            "token",
            "create",
            "--json",
            "--owner",
            "alice",
            "--state",
            &state.path("state"),
        ]);
        let made: Value = serde_json::from_slice(&made.stdout).expect("JSON");
        let part = |name: &str| made[name].as_str().expect("a text").to_owned();
        let args = ["--driver", Driver::chosen().name(), "--tls", "on", "--require-authentication"];
        let (folder, socket) = (state.path("state"), state.path("socket"));
        let args = [&args[..], &["--state", &folder, "--socket", &socket]].concat();
        let server = Server::start_with(&args, &[("OUTBOARD_CPU_MEMORY", "256M")]);
        Strict { server, fingerprint: part("fingerprint"), token: part("token"), state }
    }

    fn address(&self) -> &str {
        self.server.address()
    }

    /// A file with the token.
    fn token_file(&self) -> String {
        self.state.write("token", &self.token)
    }

    /// What `outboard login` takes.
    fn invitation(&self) -> String {
        format!("outboard://{}@{}/{}", self.token, self.address(), self.fingerprint)
    }
}

fn list(servers: &[&Strict]) -> String {
    servers.iter().map(|strict| strict.address()).collect::<Vec<_>>().join(",")
}

/// The program `servers` below `outboard run` with these arguments; its profile.
fn profile(arguments: &[&str], env: &[(&str, &str)]) -> Value {
    let folder = Folder::create();
    let file = folder.path("profile");
    let mut run: Command = command();
    run.arg("run").args(arguments).arg("--").arg(outboard_e2e::programs().join("servers")).arg("2");
    let said = run
        .envs(env.iter().copied())
        .env("OUTBOARD_PROFILE", &file)
        .output()
        .expect("outboard starts");
    assert!(said.status.success(), "{said:?}");
    serde_json::from_slice(&std::fs::read(file).expect("it wrote one")).expect("JSON")
}

fn transports(profile: &Value) -> Vec<&str> {
    let servers = profile["servers"].as_array().expect("a list of servers");
    servers.iter().filter_map(|one| one["transport"].as_str()).collect()
}

#[test]
fn each_server_has_its_own_token_certificate_and_transport() {
    let (first, second) = (Strict::start(), Strict::start());
    assert_ne!(first.fingerprint, second.fingerprint);
    let of = |strict: &Strict, transport: &str| {
        format!(
            "[servers.\"{}\"]\ntransport = \"{transport}\"\ntls-fingerprint = \"{}\"\ntoken-file = \"{}\"\n",
            strict.address(),
            strict.fingerprint,
            strict.token_file()
        )
    };
    let folder = Folder::create();
    let server = format!("[client]\nserver = \"{}\"\n", list(&[&first, &second]));
    let text = server + &of(&first, "tcp") + &of(&second, "shm");
    let file = folder.write("outboard.toml", &text);
    assert_eq!(transports(&profile(&[], &[("OUTBOARD_CONFIG", &file)])), ["tcp+tls", "shm"]);
    for args in [&["devices"][..], &["doctor"]] {
        let said = command().args(args).env("OUTBOARD_CONFIG", &file).output().expect("it starts");
        assert!(said.status.success(), "{said:?}");
    }
    // A flag means all servers.
    let wrong = first.fingerprint.as_str();
    let arguments = ["run", "--fingerprint", wrong, "--token-file", &first.token_file(), "true"];
    let said = command().args(arguments).env("OUTBOARD_CONFIG", &file).output().expect("it starts");
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(text.contains("OB0403") && text.contains(second.address()), "{text}");
    // What is in force is shown, with its place.
    let said = command().args(["config", "show"]).env("OUTBOARD_CONFIG", &file).output();
    let said = said.expect("it starts");
    let shown = String::from_utf8_lossy(&said.stdout);
    let header = format!("[servers.\"{}\"]", second.address());
    assert!(shown.contains(&header) && shown.contains("transport = \"shm\""), "{shown}");
}

/// The program `servers` with the library alone, told all by variables.
fn by_variables(servers: &[&Strict], own: &Value, more: &[(&str, &str)]) -> Outcome {
    let program = Program::new("servers").arg("2").env("OUTBOARD_LOG", "1");
    let program = program.env("OUTBOARD_CONFIG", "none").env("OUTBOARD_SERVER", &list(servers));
    let program = program.env("OUTBOARD_SERVERS", &own.to_string());
    more.iter().fold(program, |program, (name, value)| program.env(name, value)).with_library()
}

#[test]
fn variables_say_the_same_and_no_token_goes_to_another_server() {
    let (first, second) = (Strict::start(), Strict::start());
    let own = |strict: &Strict| json!({"tls-fingerprint": strict.fingerprint, "token-file": strict.token_file()});
    let both = json!({first.address(): own(&first), second.address(): own(&second)});
    by_variables(&[&first, &second], &both, &[]).expect_success("variables of both");
    // The general ones are for servers without.
    let one = json!({second.address(): own(&second)});
    let general = [
        ("OUTBOARD_TLS_FINGERPRINT", first.fingerprint.as_str()),
        ("OUTBOARD_TOKEN", first.token.as_str()),
    ];
    by_variables(&[&first, &second], &one, &general).expect_success("general ones for the first");
    let without = json!({second.address(): {"tls-fingerprint": second.fingerprint}});
    let outcome = by_variables(&[&first, &second], &without, &general);
    let said = &outcome.stderr;
    assert!(!outcome.status.success() && said.contains(second.address()), "{said}");
    assert!(said.contains("OB0401"), "no token was shown, not a wrong one: {said}");
    // Mistakes are said, and nothing is connected to.
    for (own, part) in [
        (json!({second.address(): {"token": "x"}}), "there is no setting `token`"),
        (json!({second.address(): {"token-file": "/nowhere"}}), "`token-file` of "),
    ] {
        let outcome = by_variables(&[&first, &second], &own, &general);
        let said = &outcome.stderr;
        assert!(!outcome.status.success() && said.contains(part), "{said}");
        assert!(said.contains("OB0406"), "{said}");
    }
}

#[test]
fn a_login_for_each_server_of_a_list_is_enough() {
    let (first, second) = (Strict::start(), Strict::start());
    let folder = Folder::create();
    let file = folder.path("outboard.toml");
    for strict in [&first, &second] {
        let arguments = ["login", "--config", &file, "--add", &strict.invitation()];
        let said = outboard(&arguments);
        assert!(said.status.success(), "{said:?}");
    }
    let both = list(&[&first, &second]);
    let profile =
        profile(&["--config", &file, "--server", &both], &[("OUTBOARD_TRANSPORT", "tcp")]);
    assert_eq!(transports(&profile), ["tcp+tls", "tcp+tls"]);
    // Another token is not replaced in silence.
    let other =
        format!("outboard://obt_{}@{}/{}", "0a".repeat(32), first.address(), first.fingerprint);
    let said = outboard(&["login", "--config", &file, "--add", &other]);
    assert!(!said.status.success(), "{said:?}");
    let said = outboard(&["login", "--config", &file, "--add", "--context", "x", &other]);
    assert!(!said.status.success(), "{said:?}");
}
