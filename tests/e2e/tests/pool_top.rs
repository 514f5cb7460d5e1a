//! `outboard top --pool`: a pool, live.

use std::process::Stdio;

use outboard_broker_client::Method;
use outboard_e2e::{Lines, PlayedServer, PoolBroker, Terminal, command};
use outboard_pool::api::{Ask, PoolView, Standing};
use outboard_pool::words::{MayShare, Request};

/// A broker with a server of two devices, of which ada has one; and ada's token.
fn pool() -> (PoolBroker, PlayedServer, String) {
    let broker = PoolBroker::start(&[]);
    let server = PlayedServer::start(&broker, &broker.token("server", "s"), "gpu1", 2);
    let token = broker.token("client", "ada");
    let (owner, group) = ("ada".parse().unwrap(), "everybody".parse().unwrap());
    let request = Request { may_share: MayShare::SameKey, ..Request::new(owner, group, 1) };
    let ask = Ask::new(request, "ab".repeat(32).parse().unwrap());
    let standing = broker.for_token(&token).tell::<Standing>(Method::POST, "/v1/requests", &ask);
    assert!(matches!(standing, Ok(Standing::Granted(_))), "{standing:?}");
    (broker, server, token)
}

#[test]
fn scripts_get_the_pool_as_text_and_as_json() {
    let (broker, _server, token) = pool();
    let text = broker.command(&token, &["top", "--pool", "--once"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for part in ["1.0/2 devices taken", "gpu1/0", "Played 80GB", "ada", "nobody waits"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The address may be said, too.
    let url = format!("https://{}", broker.address);
    let json = broker.command(&token, &["top", "--pool", &url, "--once", "--json"]);
    let view: PoolView = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((view.servers.len(), view.leases.len()), (1, 1));
    let refused = broker.command("obt_00", &["top", "--pool", "--once"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("does not accept this token"), "{said}");
}

#[test]
fn a_broker_that_is_away_for_a_while_is_waited_for() {
    let (mut broker, _server, token) = pool();
    let mut child = command()
        .args(["top", "--pool", "--interval", "0.1"])
        .envs(broker.variables(&token))
        .stdout(Stdio::piped())
        .spawn()
        .expect("outboard starts");
    let lines = Lines::of(child.stdout.take());
    lines.find("gpu1/0");
    broker.kill();
    lines.find("cannot be reached");
    broker.restart();
    lines.find("1/1 servers ready");
    child.kill().expect("it runs");
    child.wait().expect("it has run");
}

#[test]
fn it_draws_on_a_terminal_and_leaves_it_as_it_was() {
    let (broker, _server, token) = pool();
    let mut top = command();
    top.args(["top", "--pool", "--interval", "0.2"]).envs(broker.variables(&token));
    let mut terminal = Terminal::run(&mut top);
    let is_shown = terminal.shows("LEASE") && terminal.shows("gpu1/1");
    assert!(is_shown && terminal.is_raw(), "{}", terminal.screen);
    terminal.press("\t");
    terminal.screen.clear();
    let end = broker.for_token(&token).bytes(Method::DELETE, "/v1/leases/1");
    assert!(end.is_ok(), "{end:?}");
    // Only cells that change are written: of `nobody has a lease` those of the first word do.
    assert!(terminal.shows("nobody"), "it is live: {}", terminal.screen);
    terminal.press("q");
    terminal.is_left_as_it_was();
}
