//! The command in daily use: variables for a shell, short names, a login, a look at the sessions again and again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use outboard_e2e::{Server, command, dist};

/// A folder of a test's own.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("outboard-e2e-daily-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the folder can be made");
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a plain path").to_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).expect("the file can be written");
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

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
    entries.filter(|(name, _)| !own.contains(name)).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Variables and their values.
type Environment<'a> = &'a [(&'a str, &'a str)];

/// What a shell hands on to its programs after `eval "$(outboard env ...)"`, and what `outboard run` hands on with the same flags.
fn both(flags: &[&str], env: Environment<'_>) -> [BTreeMap<String, String>; 2] {
    let program = dist().join("bin/outboard");
    let mut shell = Command::new("sh");
    shell.args(["-c", "variables=$(\"$0\" env \"$@\") && eval \"$variables\" && env -0"]).arg(&program).args(flags);
    shell.env_clear().env("PATH", "/usr/bin:/bin").env("OUTBOARD_CONFIG", "none").envs(env.iter().copied());
    let evaluated = printed(&shell.output().expect("sh starts"));
    let run = bare(&[&["run"], flags, &["--", "env", "-0"]].concat(), env).output();
    [variables(&evaluated), variables(&printed(&run.expect("outboard starts")))]
}

#[test]
fn a_shell_gets_what_run_sets() {
    let folder = Folder::new();
    let server = Server::start_with(&["--driver", "cpu"], &[]);
    let address = server.address();
    let token = folder.write("it's a $token", "obt_0");
    let settings = folder.write("outboard.toml", "[client]\nreconnect = 7\nspin-us = 3\n");
    let named = [("OUTBOARD_SERVER", "gpu7/3")];
    let pasts = [("LD_LIBRARY_PATH", "/a b:/c's"), ("TRITON_LIBCUDA_PATH", "/mine"), ("PYTHONPATH", "/p\nq")];
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
    let flags = ["env", "--server", "gpu1/2", "--token-file", &token, "--tls-fingerprint", "sha256:0"];
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
    let again: Vec<(&str, &str)> = first.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(both(&["--server", address], &again)[0], first);
}

#[test]
fn every_format_says_the_same_and_a_check_says_when_no_server_answers() {
    let env = |format: &str| {
        let past = [("LD_LIBRARY_PATH", "/a b\n/c")];
        printed(&bare(&["env", "--server", "gpu1", "--format", format], &past).output().expect("outboard starts"))
    };
    let json: BTreeMap<String, String> = serde_json::from_str(&env("json")).expect("an object of texts");
    assert_eq!(json["OUTBOARD_SERVER"], "gpu1:9470");
    assert!(json["LD_LIBRARY_PATH"].ends_with("/client:/a b\n/c"), "{json:?}");
    let (shell, github, dotenv) = (env("shell"), env("github"), env("dotenv"));
    for (name, value) in json.iter().filter(|(name, _)| *name != "LD_LIBRARY_PATH") {
        assert!(shell.contains(&format!("export {name}='{value}'\n")), "{shell}");
        assert!([&github, &dotenv].iter().all(|text| text.contains(&format!("{name}={value}\n"))), "{github}{dotenv}");
    }
    assert!(
        github.contains("LD_LIBRARY_PATH<<OUTBOARD_END\n") && github.contains("/a b\n/c\nOUTBOARD_END\n"),
        "{github}"
    );
    assert!(dotenv.contains("/client:/a b\\n/c\"\n"), "{dotenv}");

    let server = Server::start_with(&["--driver", "cpu"], &[]);
    let check = ["env", "--check", "--server", server.address()];
    let answered = printed(&bare(&check, &[]).output().expect("outboard starts"));
    assert!(answered.contains(server.address()), "{answered}");
    let address = server.address().to_owned();
    drop(server);
    let silent = bare(&["env", "--check", "--server", &address], &[]).output().expect("outboard starts");
    assert!(!silent.status.success() && silent.stdout.is_empty(), "a shell sets nothing then: {}", said(&silent));
    assert!(said(&silent).contains("OB0101"), "{}", said(&silent));
}
