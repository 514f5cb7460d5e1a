//! Contexts: servers by name in the configuration, and which of them, a flag and a variable counts.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use outboard_e2e::{Folder, Server, command};

/// A user with a configuration of their own.
struct User(Folder);

impl User {
    fn run(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        let mut command = command();
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("XDG_CONFIG_HOME", self.0.path("config"))
            .args(args);
        command.envs(env.iter().copied()).output().expect("outboard starts")
    }

    fn printed(&self, args: &[&str], env: &[(&str, &str)]) -> String {
        let output = self.run(args, env);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    fn refused(&self, args: &[&str], env: &[(&str, &str)], part: &str) {
        let output = self.run(args, env);
        let text = said(&output);
        assert!(
            !output.status.success() && text.contains(part),
            "{args:?}: {part} is not in {text}"
        );
    }

    /// The variables that programs get.
    fn env(&self, args: &[&str], env: &[(&str, &str)]) -> serde_json::Value {
        let printed = self.printed(&[&["env", "--format", "json"], args].concat(), env);
        serde_json::from_str(&printed).expect("JSON")
    }

    fn file(&self, name: &str) -> String {
        self.0.path(&format!("config/outboard/{name}"))
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn user() -> User {
    User(Folder::create())
}

const SERVER: &str = "OUTBOARD_SERVER";

#[test]
fn the_context_that_is_chosen_counts_and_a_server_that_is_named_goes_before_it() {
    let user = user();
    let fingerprint = format!("sha256:{}", "ab".repeat(32));
    user.printed(
        &["context", "add", "a", "--server", "gpu1", "--tls-fingerprint", &fingerprint],
        &[],
    );
    user.printed(&["context", "add", "b", "--server", "gpu2/1", "--token-file", "/t/b"], &[]);
    assert_eq!(user.env(&[], &[])[SERVER], "localhost:9470", "none is chosen yet");
    user.printed(&["context", "use", "a"], &[]);
    let listed = user.printed(&["context", "list"], &[]);
    assert_eq!(listed, "  default  this machine\n* a        gpu1:9470\n  b        gpu2:9470/1\n");

    let of = |args: &[&str], env: &[(&str, &str)]| {
        user.env(args, env)[SERVER].as_str().unwrap_or_default().to_owned()
    };
    let by_variable = [("OUTBOARD_CONTEXT", "b")];
    let server = [("OUTBOARD_CONTEXT", "b"), (SERVER, "gpu9")];
    assert_eq!(of(&[], &[]), "gpu1:9470");
    assert_eq!(of(&[], &by_variable), "gpu2:9470/1");
    assert_eq!(of(&[], &server), "gpu9:9470");
    assert_eq!(of(&["--context", "a"], &server), "gpu1:9470");
    assert_eq!(of(&["--server", "gpu8"], &server), "gpu8:9470");
    assert_eq!(of(&["--context", "default"], &server), "localhost:9470");

    // What shows who this is goes to the server that it is for.
    assert_eq!(user.env(&[], &[])["OUTBOARD_TLS_FINGERPRINT"], fingerprint);
    for args in [&["--context", "b"][..], &["--server", "gpu8"]] {
        assert!(user.env(args, &[]).get("OUTBOARD_TLS_FINGERPRINT").is_none(), "{args:?}");
    }
    let mine = [("OUTBOARD_TOKEN", "obt_0"), ("OUTBOARD_TLS_CA", "/ca"), ("OUTBOARD_SPIN_US", "7")];
    let variables = user.env(&["--context", "b"], &mine);
    assert_eq!(variables["OUTBOARD_TOKEN_FILE"], "/t/b");
    for gone in ["OUTBOARD_TOKEN", "OUTBOARD_TLS_CA"] {
        assert!(variables.get(gone).is_some_and(serde_json::Value::is_null), "{gone}: {variables}");
    }
    assert!(variables.get("OUTBOARD_SPIN_US").is_none(), "what is of no server stays: {variables}");

    user.refused(&["ls", "--context", "a", "--server", "gpu2"], &[], "OB0706");
    user.refused(&["ls", "--context", "c"], &[], "OB0708");
    user.refused(&["ls"], &[("OUTBOARD_CONTEXT", "c")], "OB0708");
    user.refused(&["context", "use", "c"], &[], "it has a, b".trim_start_matches("it "));
}

#[test]
fn settings_of_no_server_hold_for_every_context() {
    let user = user();
    std::fs::create_dir_all(user.0.path("config/outboard")).expect("the folder can be made");
    let text = "[client]\nserver = \"gpu0\"\ntoken-file = \"/t/0\"\nspin-us = 3\nreconnect = 9\n\n[contexts.a]\nserver = \"gpu1\"\nspin-us = 5\n";
    std::fs::write(user.file("outboard.toml"), text).expect("it can be written");
    let variables = user.env(&["--context", "a"], &[]);
    assert_eq!(
        (&variables["OUTBOARD_SPIN_US"], &variables["OUTBOARD_RECONNECT"]),
        (&"5".into(), &"9".into())
    );
    assert!(
        variables.get("OUTBOARD_TOKEN_FILE").is_none(),
        "that token is another server's: {variables}"
    );
    assert_eq!(user.env(&[], &[])["OUTBOARD_TOKEN_FILE"], "/t/0");
    let shown = user.printed(&["config", "show", "--context", "a"], &[]);
    assert!(shown.contains("context = \"a\"") && shown.contains("server = \"gpu1\""), "{shown}");
    assert_eq!(
        user.printed(&["context", "show", "a"], &[]),
        "server = \"gpu1\"\nspin-us = \"5\"\n"
    );

    let mistakes = [
        ("[client]\ncontext = \"b\"\n[contexts.a]\n", "there is no context `b`"),
        ("[contexts.a]\nserverr = \"x\"\n", "did you mean `server`"),
        ("[contexts.a]\ncontext = \"a\"\n", "there is no setting `context`"),
        ("[contexts.\"a b\"]\nserver = \"x\"\n", "no context can be named `a b`"),
        ("[contexts.default]\n", "no context can be named `default`"),
        ("contexts = 1\n", "write [contexts]"),
        ("[contexts]\na = 1\n", "write [contexts.a]"),
    ];
    for (text, part) in mistakes {
        std::fs::write(user.file("outboard.toml"), text).expect("it can be written");
        user.refused(&["config", "check"], &[], part);
    }
}

#[test]
fn logins_are_kept_apart_and_a_context_goes_with_its_token() {
    let user = user();
    let state = user.0.path("state");
    let invitation = |address: &str| {
        let create =
            ["token", "create", "--json", "--state", &state, "--owner", "me", "--address", address];
        let made: serde_json::Value =
            serde_json::from_str(&user.printed(&create, &[])).expect("JSON");
        made["login"].as_str().expect("a text").to_owned()
    };
    let _ = invitation("gpu0");
    let server = Server::start_with(
        &["--driver", "cpu", "--tls", "on", "--require-authentication", "--state", &state],
        &[],
    );
    user.printed(&["login", "--no-check", &invitation("gpu0")], &[]);
    let text = user.printed(&["login", "--context", "here", &invitation(server.address())], &[]);
    assert!(text.contains("`outboard context use here`"), "{text}");
    let mode = |name: &str| {
        std::fs::metadata(user.file(name)).map(|there| there.permissions().mode() & 0o777).ok()
    };
    assert_eq!([mode("token"), mode("token-here"), mode("outboard.toml")], [Some(0o600); 3]);
    let tokens = ["token", "token-here"]
        .map(|name| std::fs::read_to_string(user.file(name)).expect("it is there"));
    assert_ne!(tokens[0], tokens[1]);
    assert!(user.printed(&["ls", "--context", "here"], &[]).contains("tcp+tls"));
    user.printed(&["context", "use", "here"], &[]);
    let script = "echo $OUTBOARD_SERVER $OUTBOARD_TOKEN_FILE";
    let seen = user.printed(&["run", "--", "sh", "-c", script], &[]);
    assert_eq!(seen.trim(), format!("{} {}", server.address(), user.file("token-here")));
    let env = user.run(&["env"], &[]);
    assert!(
        said(&env).contains(&format!("the context here, server {}", server.address())),
        "{}",
        said(&env)
    );
    let doctor = said(&user.run(&["doctor"], &[]));
    assert!(doctor.contains(&format!("here, which is {}", server.address())), "{doctor}");

    // One that is in use stays; another one goes with its token, and nothing else does.
    user.refused(&["context", "remove", "here"], &[], "is in use");
    user.refused(&["context", "add", "here", "--server", "gpu3"], &[], "--force");
    let again = user.printed(&["login", "--no-check", "--force", &invitation("gpu0")], &[]);
    assert!(again.contains("`outboard context use default`"), "{again}");
    user.printed(&["context", "use", "default"], &[]);
    user.printed(&["context", "remove", "here"], &[]);
    assert_eq!([mode("token"), mode("token-here")], [Some(0o600), None]);
    assert_eq!(user.printed(&["context", "list"], &[]), "* default  gpu0:9470\n");
    user.refused(&["context", "remove", "here"], &[], "OB0708");
    user.refused(&["login", "--context", "a b", &invitation("gpu0")], &[], "OB0706");
}
