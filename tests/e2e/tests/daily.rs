//! The command in daily use: variables for a shell, short names, a login, a look at the sessions
//! again and again.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use outboard_e2e::{Folder, Program, Server, command, dist, within};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", said(output));
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// The command with these arguments, in an environment that holds only what is said.
fn bare(args: &[&str], env: Environment<'_>) -> Command {
    let mut command = command();
    command.env_clear().env("PATH", "/usr/bin:/bin").env("OUTBOARD_CONFIG", "none").args(args);
    command.envs(env.iter().copied());
    command
}

/// The variables that `env` prints, without those that shells make themselves.
fn variables(listed: &str) -> BTreeMap<String, String> {
    let own = ["PWD", "OLDPWD", "SHLVL", "_"];
    let entries = listed.split('\0').filter_map(|entry| entry.split_once('='));
    entries
        .filter(|(name, _)| !own.contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Variables and their values.
type Environment<'a> = &'a [(&'a str, &'a str)];

/// What a shell hands on to its programs after `eval "$(outboard env ...)"`, and what
/// `outboard run` hands on with the same flags.
fn both(flags: &[&str], env: Environment<'_>) -> [BTreeMap<String, String>; 2] {
    let program = dist().join("bin/outboard");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "variables=$(\"$0\" env \"$@\") && eval \"$variables\" && env -0"])
        .arg(&program)
        .args(flags);
    shell
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("OUTBOARD_CONFIG", "none")
        .envs(env.iter().copied());
    let evaluated = printed(&shell.output().expect("sh starts"));
    let run = bare(&[&["run"], flags, &["--", "env", "-0"]].concat(), env).output();
    [variables(&evaluated), variables(&printed(&run.expect("outboard starts")))]
}

#[test]
fn a_shell_gets_what_run_sets() {
    let folder = Folder::create();
    let server = Server::start_with(&["--driver", "cpu"], &[]);
    let address = server.address();
    let token = folder.write("it's a $token", "obt_0");
    let settings = folder.write("outboard.toml", "[client]\nreconnect = 7\nspin-us = 3\n");
    let named = [("OUTBOARD_SERVER", "gpu7/3")];
    let pasts = [
        ("LD_LIBRARY_PATH", "/a b:/c's"),
        ("TRITON_LIBCUDA_PATH", "/mine"),
        ("PYTHONPATH", "/p\nq"),
    ];
    let secrets = [("OUTBOARD_TOKEN", "obt_1"), ("OUTBOARD_TLS_CA", "/ca")];
    let configured = [("OUTBOARD_CONFIG", settings.as_str()), ("OUTBOARD_SPIN_US", "9")];
    let cases: [(&[&str], Environment<'_>); 6] = [
        (&["--server", address], &[]),
        (&["--server", address, "--no-wait"], &pasts),
        (&["--server", address], &configured),
        (&["--local-cpu"], &named),
        (&["--local-cpu"], &pasts),
        (&["--server", address, "--tls", "auto"], &[("TRITON_LIBCUDA_PATH", "")]),
    ];
    for (flags, env) in cases {
        let [evaluated, run] = both(flags, env);
        assert_eq!(evaluated, run, "{flags:?} {env:?}");
        assert!(run["LD_LIBRARY_PATH"].contains("lib/outboard/"), "{run:?}");
    }
    // `run` would connect with these; what they come to needs no server.
    let flags =
        ["env", "--server", "gpu1/2", "--token-file", &token, "--tls-fingerprint", "sha256:0"];
    let lines = printed(&bare(&flags, &secrets).output().expect("outboard starts"));
    assert!(!lines.contains("obt_"), "no token is printed: {lines}");
    let quoted = token.replace('\'', "'\\''");
    for line in [
        "export OUTBOARD_SERVER='gpu1:9470/2'",
        "export OUTBOARD_TLS_FINGERPRINT='sha256:0'",
        &format!("export OUTBOARD_TOKEN_FILE='{quoted}'"),
        "unset OUTBOARD_TOKEN",
        "unset OUTBOARD_TLS_CA",
    ] {
        assert!(lines.lines().any(|known| known == line), "{line} is not in\n{lines}");
    }
    // A second time nothing grows.
    let first: BTreeMap<String, String> = both(&["--server", address], &pasts)[0].clone();
    let again: Vec<(&str, &str)> =
        first.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(both(&["--server", address], &again)[0], first);
}

#[test]
fn every_format_says_the_same_and_a_check_says_when_no_server_answers() {
    let env = |format: &str| {
        let past = [("LD_LIBRARY_PATH", "/a b\n/c")];
        printed(
            &bare(&["env", "--server", "gpu1", "--format", format], &past)
                .output()
                .expect("outboard starts"),
        )
    };
    let json: BTreeMap<String, String> =
        serde_json::from_str(&env("json")).expect("an object of texts");
    assert_eq!(json["OUTBOARD_SERVER"], "gpu1:9470");
    assert!(json["LD_LIBRARY_PATH"].ends_with("/client:/a b\n/c"), "{json:?}");
    let (shell, github, dotenv) = (env("shell"), env("github"), env("dotenv"));
    for (name, value) in json.iter().filter(|(name, _)| *name != "LD_LIBRARY_PATH") {
        assert!(shell.contains(&format!("export {name}='{value}'\n")), "{shell}");
        assert!(
            [&github, &dotenv].iter().all(|text| text.contains(&format!("{name}={value}\n"))),
            "{github}{dotenv}"
        );
    }
    assert!(
        github.contains("LD_LIBRARY_PATH<<OUTBOARD_END\n")
            && github.contains("/a b\n/c\nOUTBOARD_END\n"),
        "{github}"
    );
    assert!(dotenv.contains("/client:/a b\\n/c\"\n"), "{dotenv}");

    let server = Server::start_with(&["--driver", "cpu"], &[]);
    let check = ["env", "--check", "--server", server.address()];
    let answered = printed(&bare(&check, &[]).output().expect("outboard starts"));
    assert!(answered.contains(server.address()), "{answered}");
    let address = server.address().to_owned();
    drop(server);
    let silent =
        bare(&["env", "--check", "--server", &address], &[]).output().expect("outboard starts");
    assert!(
        !silent.status.success() && silent.stdout.is_empty(),
        "a shell sets nothing then: {}",
        said(&silent)
    );
    assert!(said(&silent).contains("OB0101"), "{}", said(&silent));
}

/// A token for the server that keeps its tokens there, as one string.
fn invitation(state: &str, address: &str) -> String {
    let create =
        ["token", "create", "--json", "--state", state, "--owner", "alice", "--address", address];
    let made = printed(&bare(&create, &[]).output().expect("outboard starts"));
    let made: serde_json::Value = serde_json::from_str(&made).expect("JSON");
    made["login"].as_str().expect("a text").to_owned()
}

/// `outboard login` of a user whose configuration lies in that folder, with this on standard input.
fn login(folder: &Folder, args: &[&str], input: &str) -> Output {
    let mut login =
        bare(&[&["login"], args].concat(), &[("XDG_CONFIG_HOME", &folder.path("config"))]);
    login
        .env_remove("OUTBOARD_CONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = login.spawn().expect("outboard starts");
    // One that has its string already does not read.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

#[test]
fn after_a_login_no_command_needs_a_flag() {
    let folder = Folder::create();
    let state = folder.path("state");
    let server = {
        // The address is known only when the server listens, and it starts only with its tokens'
        // folder.
        let _ = invitation(&state, "gpu1");
        let flags =
            ["--driver", "cpu", "--tls", "on", "--require-authentication", "--state", &state];
        Server::start_with(&flags, &[])
    };
    let string = invitation(&state, server.address());
    let output = login(&folder, &["-"], &format!("{string}\n"));
    let text = printed(&output);
    let token = &string["outboard://".len()..string.find('@').expect("a token")];
    assert!(
        !said(&output).contains(token)
            && text.contains("outboard.toml")
            && text.contains(server.address()),
        "{text}"
    );
    let file = folder.path("config/outboard/token");
    let mode =
        |path: &str| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(&folder.path("config/outboard"))), (0o600, 0o700));
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), format!("{token}\n"));

    let settings = folder.path("config");
    let with = |args: &[&str]| {
        let mut command = bare(args, &[("XDG_CONFIG_HOME", &settings)]);
        printed(&command.env_remove("OUTBOARD_CONFIG").output().expect("outboard starts"))
    };
    assert!(with(&["devices"]).contains("tcp+tls"));
    assert_eq!(with(&["run", "--", "sh", "-c", "echo $OUTBOARD_SERVER"]).trim(), server.address());
    let lines = with(&["env"]);
    assert!(
        lines.contains(&file)
            && lines.contains("OUTBOARD_TLS_FINGERPRINT='sha256:")
            && !lines.contains(token),
        "{lines}"
    );
}

#[test]
fn a_login_replaces_nothing_unless_told_so() {
    let folder = Folder::create();
    let state = folder.path("state");
    let (first, second) = (invitation(&state, "gpu1"), invitation(&state, "gpu2:81"));
    let (file, token) =
        (folder.path("config/outboard/outboard.toml"), folder.path("config/outboard/token"));
    let both = || [&file, &token].map(|path| std::fs::read_to_string(path).ok());
    std::fs::create_dir_all(folder.path("config/outboard")).expect("the folder can be made");
    let mine =
        "# mine\n[client]\nspin-us = 5   # as measured\ntls = \"off\"\n\n[serve]\nwarm = 2\n";
    let refused = |args: &[&str], input: &str, part: &str| {
        let before = both();
        let output = login(&folder, args, input);
        let text = said(&output);
        assert!(
            !output.status.success() && text.contains(part) && text.contains("OB0"),
            "{part} is not in {text}"
        );
        assert!(
            !text.contains("obt_0")
                && !text.contains(&first[15..40])
                && !text.contains(&second[15..40]),
            "{text}"
        );
        assert_eq!(both(), before, "nothing was written");
    };
    // What is no such string, and a file that has mistakes.
    for wrong in [
        "",
        "gpu1",
        &first[..first.len() - 1],
        &first.replace("@gpu1", "@"),
        "outboard://gpu1@obt_0/x",
    ] {
        refused(&["-"], wrong, "OB0706");
        refused(&[wrong], "", "OB0706");
    }
    refused(&[], &"x".repeat(1 << 20), "OB0706");
    std::fs::write(&file, "[client]\nserve = 1\n").expect("it can be written");
    refused(&[&first, "--force"], "", "OB0703");
    let output = login(&folder, &[&first, "--config", &token], "");
    assert!(
        !output.status.success() && said(&output).contains("OB0704") && both()[1].is_none(),
        "{}",
        said(&output)
    );
    // In the clear the token would be readable.
    std::fs::write(&file, mine).expect("it can be written");
    refused(&[&first], "", "tls = off");
    printed(&login(&folder, &[&first, "--force", "--no-check"], ""));
    let [text, _] = both().map(Option::unwrap_or_default);
    assert!(
        text.contains("spin-us = 5   # as measured\ntls = \"auto\"\n\n[serve]\nwarm = 2\n"),
        "{text}"
    );
    assert!(
        text.starts_with("# mine\n[client]\n") && text.contains("server = \"gpu1:9470\"\n"),
        "{text}"
    );
    // The same again is no change; another one is, even where only the token differs.
    let before = both();
    printed(&login(&folder, &["--no-check"], &first));
    assert_eq!(both(), before);
    refused(&[&invitation(&state, "gpu1")], "", "another token");
    printed(&login(&folder, &["--force", "--no-check", "-"], &second));
    let [text, token] = both().map(Option::unwrap_or_default);
    assert!(text.contains("server = \"gpu2:81\"\n") && !text.contains("gpu1"), "{text}");
    assert!(second.contains(token.trim()) && !token.trim().is_empty());
    // A server's address that clients could not use is no token's.
    let create = ["token", "create", "--state", &state, "--owner", "eve", "--address", "gpu 1"];
    let output = bare(&create, &[]).output().expect("outboard starts");
    assert!(!output.status.success() && said(&output).contains("OB0107"), "{}", said(&output));
    let listed = printed(
        &bare(&["token", "list", "--state", &state], &[]).output().expect("outboard starts"),
    );
    assert!(!listed.contains("eve"), "no token was made: {listed}");
    let create = ["token", "create", "--state", &state, "--owner", "eve", "--address", "gpu1"];
    let text = printed(&bare(&create, &[]).output().expect("outboard starts"));
    assert!(
        text.lines().any(
            |line| line.starts_with("  outboard://obt_") && line.contains("@gpu1:9470/sha256:")
        ),
        "{text}"
    );
}

/// `outboard sessions --watch`, and what it prints.
fn watch(server: &Server, flags: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let args = [&["sessions", "--server", server.address(), "--watch", "0.1"], flags].concat();
    let mut child = command()
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("outboard starts");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    (child, output)
}

/// Looks follow each other, 80 columns wide, until nobody reads them; in JSON each is a line.
#[test]
fn sessions_are_watched_until_nobody_looks() {
    let server = Server::start_with(&["--driver", "cpu"], &[]);
    let (mut child, output) = watch(&server, &[]);
    let mut lines = output.lines().map(|line| line.expect("text"));
    assert!(lines.by_ref().take(20).any(|line| line == "No sessions."), "there is none yet");
    let name = "a-program-of-a-long-name-that-does-not-fit-into-its-column";
    let link = Folder::create();
    let program = link.path(name);
    std::fs::copy(outboard_e2e::programs().join("endless"), &program).expect("it can be copied");
    let mut running = Program::new(&program).arg("1").start_through(&server);
    running.wait_for_line("running");
    let rows: Vec<String> =
        lines.by_ref().take(1000).filter(|line| line.contains("a-program-of")).take(3).collect();
    assert_eq!(rows.len(), 3, "one look after the other");
    assert!(rows.iter().all(|row| row.chars().count() <= 80 && row.contains("…")), "{rows:?}");
    drop(lines);
    let ended = within(
        Duration::from_secs(20),
        || matches!(child.try_wait(), Ok(Some(status)) if status.success()),
    );
    assert!(ended, "it ends when nobody reads");

    let (mut child, output) = watch(&server, &["--json"]);
    for line in output.lines().take(3) {
        let look: serde_json::Value =
            serde_json::from_str(&line.expect("text")).expect("an object in a line");
        assert_eq!(look["sessions"].as_array().map(Vec::len), Some(1), "{look}");
    }
    let _ = child.kill();
    let _ = child.wait();
    let wrong = command().args(["sessions", "--watch", "0"]).output().expect("outboard starts");
    assert!(!wrong.status.success() && said(&wrong).contains("OB0706"), "{}", said(&wrong));
}
