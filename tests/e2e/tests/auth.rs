//! Who may come in: tokens, certificates, encrypted connections; and those who may not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use outboard_e2e::{Authority, Driver, Folder, Lines, Program, Server, command, dist, within};
use outboard_test_support::skip;

/// How long a session may go on after its token was revoked, on a machine that is busy.
const SOON: Duration = Duration::from_secs(30);

fn outboard(args: &[&str], env: &[(&str, &str)]) -> Output {
    command().args(args).envs(env.iter().copied()).output().expect("outboard starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A token, its name, and the fingerprint of the server that keeps its tokens in that folder.
fn token(state: &str, flags: &[&str]) -> (String, String, String) {
    let owner: &[&str] = if flags.contains(&"--owner") { &[] } else { &["--owner", "alice"] };
    let args = [&["token", "create", "--json", "--state", state], owner, flags].concat();
    let made = outboard(&args, &[]);
    assert!(made.status.success(), "{}", said(&made));
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
    let part = |name: &str| made[name].as_str().expect("a text").to_owned();
    (part("token"), part("id"), part("fingerprint"))
}

/// A server that encrypts and asks everybody who they are, whose state is in that folder.
fn strict(state: &str, flags: &[&str]) -> Server {
    let all = [
        &[
            "--driver",
            Driver::chosen().name(),
            "--tls",
            "on",
            "--require-authentication",
            "--state",
            state,
        ],
        flags,
    ];
    Server::start_with(&all.concat(), &[])
}

/// What `outboard devices` says to a server.
fn devices(server: &Server, env: &[(&str, &str)]) -> Output {
    outboard(&["devices", "--server", server.address()], env)
}

fn expect_code(output: &Output, code: &str) -> String {
    let text = said(output);
    assert!(!output.status.success() && text.contains(code), "{code} is not in: {text}");
    text
}

#[test]
fn programs_run_over_tls_with_a_token() {
    let folder = Folder::create();
    let state = folder.path("state");
    let (token, id, fingerprint) = token(&state, &["--expires", "1h"]);
    let file = folder.write("token", &format!("{token}\n"));
    let server = strict(&state, &["--warm", "1"]);
    let known = |program: &str| {
        Program::new(program)
            .env("OUTBOARD_TLS_FINGERPRINT", &fingerprint)
            .env("OUTBOARD_TOKEN_FILE", &file)
    };
    // Whole programs: launches, copies of a hundred megabytes over lanes, printing, errors, NVML
    // beside CUDA.
    for program in ["vector_add", "big_copy", "device_printf", "errors", "host_functions"] {
        known(program).through(&server).expect_success(program);
    }
    let counted = known("vector_add").statistics(&server);
    assert!(counted.to_string().contains("tcp+tls"), "{counted}");
    let listed =
        devices(&server, &[("OUTBOARD_TLS_FINGERPRINT", &fingerprint), ("OUTBOARD_TOKEN", &token)]);
    assert!(listed.status.success() && said(&listed).contains("tcp+tls"), "{}", said(&listed));
    server.expect_logged("\"owner\":\"alice\"");
    server.expect_logged(&id);
    assert!(!server.log().contains(&token[4..]), "no token is in the log");
}

#[test]
fn wrong_expired_and_revoked_tokens_are_refused_in_the_same_words() {
    let folder = Folder::create();
    let state = folder.path("state");
    let (good, _, fingerprint) = token(&state, &[]);
    let (revoked, id, _) = token(&state, &[]);
    let (expired, expired_id, _) = token(&state, &[]);
    assert!(outboard(&["token", "revoke", &id, "--state", &state], &[]).status.success());
    // Time passes faster in the file.
    let path = Path::new(&state).join("tokens.json");
    let mut kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).expect("JSON");
    let records = kept["tokens"].as_array_mut().expect("a list");
    let record =
        records.iter_mut().find(|record| record["id"] == *expired_id).expect("it is there");
    record["expires"] = "2020-01-01T00:00:00Z".into();
    std::fs::write(&path, kept.to_string()).expect("the file can be written");
    let server = strict(&state, &[]);
    let with = |token: &str| {
        devices(&server, &[("OUTBOARD_TLS_FINGERPRINT", &fingerprint), ("OUTBOARD_TOKEN", token)])
    };
    assert!(with(&good).status.success(), "{}", said(&with(&good)));
    let wrong = expect_code(&with(&format!("obt_{}", "0".repeat(64))), "OB0402");
    for token in [&revoked, &expired] {
        assert_eq!(
            expect_code(&with(token), "OB0402"),
            wrong,
            "who has no good token learns nothing"
        );
    }
    expect_code(&devices(&server, &[("OUTBOARD_TLS_FINGERPRINT", &fingerprint)]), "OB0401");
    // The operator learns it all.
    for reason in [
        "\"state\":\"revoked\"",
        "\"state\":\"expired\"",
        "not known",
        "\"code\":\"OB0402\"",
        "\"code\":\"OB0401\"",
    ] {
        server.expect_logged(reason);
    }
    let listed = said(&outboard(&["token", "list", "--json", "--state", &state], &[]));
    assert!(
        listed.contains("\"expired\"")
            && listed.contains("\"revoked\"")
            && listed.contains("\"good\""),
        "{listed}"
    );
    assert!(!listed.contains(&good[4..]), "no token is listed");
}

#[test]
fn a_token_that_is_revoked_ends_its_sessions() {
    let folder = Folder::create();
    let state = folder.path("state");
    let (token, id, fingerprint) = token(&state, &[]);
    let server = strict(&state, &[]);
    let endless = Program::new("endless").arg("4").env("OUTBOARD_TLS_FINGERPRINT", &fingerprint);
    let mut running = endless.env("OUTBOARD_TOKEN", &token).start_through(&server);
    // The worker before that is the one of `outboard run`, which only asks.
    running.wait_for_line("running");
    server.only_worker();
    assert!(!running.has_ended());
    assert!(outboard(&["token", "revoke", &id, "--state", &state], &[]).status.success());
    assert!(within(SOON, || server.workers().is_empty()), "its worker ends");
    assert!(within(SOON, || running.has_ended()), "its program is told");
}

/// Who waits in the queue has shown a token that was good then.
#[test]
fn a_token_that_is_revoked_meanwhile_does_not_get_in() {
    let folder = Folder::create();
    let state = folder.path("state");
    let (first, _, fingerprint) = token(&state, &[]);
    let (second, id, _) = token(&state, &["--owner", "bob"]);
    let server = strict(&state, &["--max-sessions", "1", "--queue", "1"]);
    let known = |program: Program| {
        program.env("OUTBOARD_TLS_FINGERPRINT", &fingerprint).env("OUTBOARD_LOG", "1")
    };
    let holder = known(Program::new("endless").arg("4")).env("OUTBOARD_TOKEN", &first);
    let mut holder = holder.start_through(&server);
    holder.wait_for_line("running");
    let waits = known(Program::new("vector_add")).env("OUTBOARD_TOKEN", &second);
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| waits.through(&server));
        assert!(within(SOON, || server.log().contains("a client waits")), "{}", server.log());
        assert!(outboard(&["token", "revoke", &id, "--state", &state], &[]).status.success());
        holder.kill();
        waiting.join().expect("it ends")
    });
    assert!(!waiting.status.success() && waiting.stderr.contains("OB0402"), "{}", waiting.stderr);
}

#[test]
fn a_server_that_others_can_reach_does_not_start_without_knowing_its_clients() {
    let folder = Folder::create();
    let state = folder.path("state");
    let serve = [
        "serve",
        "--driver",
        "cpu",
        "--listen",
        "0.0.0.0:0",
        "--socket",
        "none",
        "--state",
        &state,
    ];
    let text = expect_code(&outboard(&serve, &[]), "OB0407");
    for way in ["outboard token create", "--client-ca", "--allow-anonymous"] {
        assert!(text.contains(way), "{way}: {text}");
    }
    expect_code(&outboard(&[&serve[..], &["--tls", "off"]].concat(), &[]), "OB0407");
    // Told so in as many words, it does.
    let mut server = command()
        .args(serve)
        .args(["--allow-anonymous", "--warm", "0"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let log = Lines::of(server.stderr.take());
    let text = log.until("serving").join("\n");
    let _ = server.kill();
    let _ = server.wait();
    assert!(text.contains("whoever can connect is let in"), "{text}");
}

#[test]
fn who_encrypts_meets_who_does_not_and_is_told() {
    let folder = Folder::create();
    let state = folder.path("state");
    let (token, _, fingerprint) = token(&state, &[]);
    let known: [(&str, &str); 2] =
        [("OUTBOARD_TLS_FINGERPRINT", &fingerprint), ("OUTBOARD_TOKEN", &token)];
    let server = strict(&state, &[]);
    expect_code(&devices(&server, &[]), "OB0405");
    expect_code(&devices(&server, &[known[0], known[1], ("OUTBOARD_TLS", "off")]), "OB0405");
    expect_code(&devices(&server, &[known[1], ("OUTBOARD_TLS", "on")]), "OB0404");
    expect_code(&devices(&server, &[("OUTBOARD_TLS_FINGERPRINT", "sha256:5"), known[1]]), "OB0406");
    let plain = Server::start_with(&["--driver", "cpu", "--tls", "off", "--state", &state], &[]);
    expect_code(&devices(&plain, &known[..1]), "OB0405");
    assert!(devices(&plain, &[]).status.success(), "on loopback nobody asks for more");
    // Whoever has the port would have the token.
    let text = expect_code(&devices(&plain, &[known[1]]), "OB0404");
    assert!(text.contains("in the clear"), "{text}");
    assert!(
        devices(&plain, &[known[1], ("OUTBOARD_TLS", "off")]).status.success(),
        "who says so in as many words"
    );
    let text = expect_code(&devices(&plain, &[("OUTBOARD_TLS", "yes")]), "OB0406");
    assert!(text.contains("`yes`") && text.contains("auto, on or off"), "{text}");
}

/// Nobody but the server hears of a token, even if the server is not there and somebody else
/// listens at its port.
#[test]
fn a_token_is_not_told_to_whoever_has_the_port() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address").to_string();
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client comes");
        stream.set_read_timeout(Some(SOON)).expect("a limit");
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        bytes
    });
    let token = format!("obt_{}", "5".repeat(64));
    expect_code(
        &outboard(&["devices", "--server", &address], &[("OUTBOARD_TOKEN", &token)]),
        "OB0404",
    );
    assert_eq!(
        heard.join().expect("the listener goes on"),
        b"",
        "the client hangs up without a word"
    );
}

/// As clusters put secrets into containers: everybody might write there, if the mount let anybody.
#[test]
fn a_folder_that_nobody_can_write_to_will_do() {
    let folder = Folder::create();
    let state = folder.path("state");
    token(&state, &[]);
    folder.allow("state", 0o1777);
    let outboard = dist().join("bin/outboard");
    let access = |mount: &str| {
        let doctor = format!(
            "{mount} exec {} doctor serve --driver cpu --listen 0.0.0.0:0 --socket none --image-cache off --state {state}",
            outboard.display()
        );
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--mount", "--map-root-user", "sh", "-c", &doctor])
            .env("OUTBOARD_CONFIG", "none");
        let said = said(&unshare.output().expect("unshare starts"));
        said.lines().find(|line| line.contains(" access ")).map(str::to_owned).ok_or(said)
    };
    match access("") {
        Err(said) => {
            // At least the other half.
            assert!(said.contains("unshare"), "{said}");
            expect_code(
                &self::outboard(
                    &["serve", "--driver", "cpu", "--listen", "127.0.0.1:0", "--state", &state],
                    &[],
                ),
                "OB0704",
            );
            skip!("no namespaces can be made here: only a folder that anybody may write to");
        }
        Ok(line) => {
            assert!(line.starts_with("FAIL"), "{line}");
            let line = access(&format!(
                "mount --bind {state} {state} && mount -o remount,ro,bind {state} &&"
            ));
            assert!(line.as_ref().is_ok_and(|line| line.starts_with("ok")), "{line:?}");
        }
    }
}

#[test]
fn a_key_that_others_can_read_is_none() {
    let folder = Folder::create();
    let [certificate, key] = Authority::new("ours").sign(&folder, "server", 2100);
    folder.allow("server.key", 0o644);
    let serve = [
        "serve",
        "--driver",
        "cpu",
        "--listen",
        "127.0.0.1:0",
        "--socket",
        "none",
        "--tls-cert",
        &certificate,
    ];
    let text = expect_code(&outboard(&[&serve[..], &["--tls-key", &key]].concat(), &[]), "OB0704");
    assert!(text.contains("chmod 600"), "{text}");
    // Half of the pair by a variable.
    let half = [("OUTBOARD_SERVE_TLS_CERT", certificate.as_str())];
    let text = expect_code(
        &outboard(
            &["serve", "--driver", "cpu", "--listen", "127.0.0.1:0", "--socket", "none"],
            &half,
        ),
        "OB07",
    );
    assert!(text.contains("--tls-key"), "{text}");
}

#[test]
fn another_server_in_between_is_found_out() {
    let (folder, others) = (Folder::create(), Folder::create());
    let (state, theirs) = (folder.path("state"), others.path("state"));
    let (token, _, fingerprint) = token(&state, &[]);
    // It has the address, and a certificate and key of its own.
    let impostor = strict(&theirs, &[]);
    let known: [(&str, &str); 2] =
        [("OUTBOARD_TLS_FINGERPRINT", &fingerprint), ("OUTBOARD_TOKEN", &token)];
    let text = expect_code(&devices(&impostor, &known), "OB0403");
    assert!(text.contains("another one"), "{text}");
    assert!(
        within(SOON, || impostor.log().contains("no encrypted connection")),
        "{}",
        impostor.log()
    );
    assert!(!impostor.log().contains("a token"), "it has not heard the token: {}", impostor.log());
}

#[test]
fn certificates_show_both_sides_who_the_other_is() {
    let folder = Folder::create();
    let (authority, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    let [ours, theirs] = [&authority, &stranger].map(|authority| authority.certificate.as_str());
    let (ours, theirs) = (folder.write("ours.pem", ours), folder.write("theirs.pem", theirs));
    let [server_certificate, server_key] = authority.sign(&folder, "server", 2100);
    let [carol, carols_key] = authority.sign(&folder, "carol", 2100);
    let [mallory, mallorys_key] = stranger.sign(&folder, "mallory", 2100);
    let state = folder.path("state");
    let flags = ["--tls-cert", &server_certificate, "--tls-key", &server_key, "--client-ca", &ours];
    let server = strict(&state, &flags);
    let trusted = ("OUTBOARD_TLS_CA", ours.as_str());
    let shown = [trusted, ("OUTBOARD_TLS_CERT", &carol), ("OUTBOARD_TLS_KEY", &carols_key)];
    let listed = devices(&server, &shown);
    assert!(listed.status.success(), "{}", said(&listed));
    let program = shown
        .iter()
        .fold(Program::new("vector_add"), |program, (name, value)| program.env(name, value));
    program.through(&server).expect_success("with a certificate");
    server.expect_logged("\"owner\":\"carol\"");
    expect_code(&devices(&server, &[trusted]), "OB0401");
    let strange = [trusted, ("OUTBOARD_TLS_CERT", &mallory), ("OUTBOARD_TLS_KEY", &mallorys_key)];
    expect_code(&devices(&server, &strange), "OB0403");
    expect_code(&devices(&server, &[("OUTBOARD_TLS_CA", &theirs), shown[1], shown[2]]), "OB0403");
    expect_code(&devices(&server, &[trusted, shown[1]]), "OB0406");

    let [expired, expired_key] = authority.sign(&folder, "expired", 2021);
    let flags = ["--tls-cert", &expired, "--tls-key", &expired_key, "--client-ca", &ours];
    let late = strict(&state, &flags);
    let text = expect_code(&devices(&late, &shown), "OB0403");
    assert!(text.contains("expired"), "{text}");
}

/// What a server says to these bytes, until it hangs up.
fn answer_to(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.address()).expect("the server listens");
    stream.set_read_timeout(Some(SOON)).expect("a limit");
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    // It may reset the connection.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn what_is_no_tls_1_3_is_turned_away_and_nobody_else_notices() {
    let folder = Folder::create();
    let state = folder.path("state");
    let (token, _, fingerprint) = token(&state, &[]);
    let server = strict(&state, &[]);
    // A greeting of TLS 1.2: version, random number, no session, two suites of that time, no
    // compression, curves and signatures.
    let mut greeting = vec![3, 3];
    greeting.extend([7; 32]);
    greeting.extend([0, 0, 4, 0xc0, 0x2f, 0xc0, 0x2b, 1, 0]);
    let extensions = [0, 10, 0, 4, 0, 2, 0, 23, 0, 13, 0, 4, 0, 2, 4, 3];
    greeting.extend([0, extensions.len() as u8]);
    greeting.extend(extensions);
    let mut message = vec![1, 0, 0, greeting.len() as u8];
    message.extend(greeting);
    let mut record = vec![0x16, 3, 1, 0, message.len() as u8];
    record.extend(message);
    // A fatal alert: protocol_version.
    assert_eq!(answer_to(&server, &record), [0x15, 3, 3, 0, 2, 2, 70]);

    let mut state = 5_u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    for length in [0, 1, 5, 100, 5000] {
        let bytes: Vec<u8> = (0..length).map(|_| random()).collect();
        answer_to(&server, &bytes);
        // The same as a record of a handshake.
        answer_to(&server, &[&[0x16, 3, 1], &bytes[..]].concat());
        answer_to(&server, &[&record[..40], &bytes[..]].concat());
    }
    let known: [(&str, &str); 2] =
        [("OUTBOARD_TLS_FINGERPRINT", &fingerprint), ("OUTBOARD_TOKEN", &token)];
    let listed = devices(&server, &known);
    assert!(listed.status.success(), "{}", said(&listed));
}
