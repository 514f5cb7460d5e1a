//! What a browser gets of a broker: the page's files, what goes with them, and no data of people
//! for those who show nothing. `cargo xtask web` looks at the page itself, in a browser.

use outboard_broker_client::Method;
use outboard_e2e::raw_https::answer;
use outboard_e2e::{PATIENCE, PlayedServer, PoolBroker, within};
use outboard_pool::api::{Ask, HistoryView, PoolView, Standing};
use outboard_pool::words::{MayShare, Request};

/// Asks with these lines of the head, and returns the status and all of the answer.
fn ask(broker: &PoolBroker, method: &str, path: &str, head: &[&str]) -> (u16, String) {
    let lines: String = head.iter().map(|line| format!("{line}\r\n")).collect();
    let host = &broker.address;
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{lines}\r\n");
    let said = answer(broker, request.as_bytes());
    let status = said.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{path}: {said}")), said)
}

fn wanted(owner: &str, devices: u32) -> Ask {
    let (owner, group) = (owner.parse().unwrap(), "everybody".parse().unwrap());
    let request = Request {
        memory_bytes: 1 << 30,
        may_share: MayShare::SameKey,
        wait_seconds: 60,
        ..Request::new(owner, group, devices)
    };
    Ask::new(request, "ab".repeat(32).parse().unwrap())
}

#[test]
fn the_page_is_for_everybody_and_the_data_is_not() {
    let broker = PoolBroker::start(&[]);
    let (status, page) = ask(&broker, "GET", "/", &[]);
    assert_eq!(status, 200);
    let files: Vec<&str> = page
        .split('"')
        .filter(|quoted| quoted.starts_with("/page/") && !quoted.contains(' '))
        .collect();
    assert_eq!(files, ["/page/icon.svg", "/page/style.css", "/page/main.js"]);
    for (path, kind) in [
        ("/", "text/html"),
        ("/page/icon.svg", "image/svg+xml"),
        ("/page/style.css", "text/css"),
        ("/page/main.js", "text/javascript"),
        ("/v1/pool", "application/json"),
    ] {
        let (_, said) = ask(&broker, "GET", path, &[]);
        let said = said.to_ascii_lowercase();
        assert!(said.contains(&format!("content-type: {kind}")), "{path}: {said}");
        for line in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self';",
            "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'\r\n",
            "x-content-type-options: nosniff\r\n",
            "referrer-policy: no-referrer\r\n",
            "cross-origin-resource-policy: same-origin\r\n",
            "cache-control: no-store\r\n",
        ] {
            assert!(said.contains(line), "{path} lacks {line}: {said}");
        }
        assert!(!said.contains("access-control-"), "no other site reads it: {said}");
    }
    // Nobody but those who show who they are gets anything else.
    for path in ["/v1/me", "/v1/pool", "/v1/history", "/v1/usage", "/metrics", "/page/x", "/page/"]
    {
        assert_eq!(ask(&broker, "GET", path, &[]).0, 401, "{path}");
    }
    assert_eq!(ask(&broker, "POST", "/", &[]).0, 401);
    assert_eq!(ask(&broker, "GET", "/page/../v1/pool", &[]).0, 401);
}

#[test]
fn an_open_view_names_nobody() {
    let broker = PoolBroker::start(&["--open-view"]);
    let server = PlayedServer::start(&broker, &broker.token("server", "s"), "gpu1", 2);
    let ada = broker.for_token(&broker.token("client", "ada-lovelace"));
    let asked = |devices| {
        ada.tell::<Standing>(Method::POST, "/v1/requests", &wanted("ada-lovelace", devices))
    };
    let Standing::Granted(grant) = asked(1).unwrap() else { panic!("a device is free") };
    server.use_lease(&grant.token).unwrap();
    assert!(matches!(asked(2).unwrap(), Standing::Waiting { .. }));
    let (status, said) = ask(&broker, "GET", "/v1/pool", &[]);
    assert_eq!(status, 200);
    for hidden in ["ada", "everybody", "GPU-gpu1", ":9470", "580.1"] {
        assert!(!said.contains(hidden), "{hidden}: {said}");
    }
    let body = said.split("\r\n\r\n").nth(1).expect("a body");
    let view: PoolView = serde_json::from_str(body).unwrap();
    let free: Vec<u8> = view.servers[0].devices.iter().map(|device| device.free_percent).collect();
    assert_eq!((free, view.queue.len(), view.leases.len()), (vec![0, 100], 1, 0));
    assert_eq!(ask(&broker, "GET", "/v1/history", &[]).0, 200);
    // All the rest is as ever, and so is who shows something that is wrong.
    for path in ["/v1/me", "/v1/usage", "/metrics", "/v1/leases/1", "/v1/leases/1/why"] {
        assert_eq!(ask(&broker, "GET", path, &[]).0, 401, "{path}");
    }
    assert_eq!(ask(&broker, "DELETE", "/v1/leases/1", &[]).0, 401);
    assert_eq!(ask(&broker, "GET", "/v1/pool", &["Authorization: Bearer obt_0"]).0, 401);
    // Who shows a token sees names as before.
    let seen: PoolView = ada.ask(Method::GET, "/v1/pool").unwrap();
    assert_eq!(seen.leases[0].owner.as_str(), "ada-lovelace");
}

#[test]
fn a_page_of_another_site_changes_nothing() {
    let broker = PoolBroker::start(&[]);
    let _server = PlayedServer::start(&broker, &broker.token("server", "s"), "gpu1", 1);
    let token = broker.token("client", "ada");
    let ada = broker.for_token(&token);
    let granted: Standing = ada.tell(Method::POST, "/v1/requests", &wanted("ada", 1)).unwrap();
    assert!(matches!(granted, Standing::Granted(_)));
    let bearer = format!("Authorization: Bearer {token}");
    for foreign in ["Sec-Fetch-Site: cross-site", "Origin: https://evil.example"] {
        for (method, path) in
            [("DELETE", "/v1/leases/1"), ("POST", "/v1/leases/1/renew"), ("POST", "/v1/requests")]
        {
            let (status, said) = ask(&broker, method, path, &[&bearer, foreign]);
            assert!(status == 403 && said.contains("another site"), "{method} {path}: {said}");
        }
    }
    let own = format!("Origin: https://{}", broker.address);
    let head = [bearer.as_str(), &own, "Sec-Fetch-Site: same-origin"];
    assert_eq!(ask(&broker, "DELETE", "/v1/leases/1", &head).0, 200);
}

#[test]
fn the_past_is_seen_in_pieces() {
    let broker = PoolBroker::start(&[]);
    let _server = PlayedServer::start(&broker, &broker.token("server", "s"), "gpu1", 2);
    let viewer = broker.for_token(&broker.token("viewer", "v"));
    let past = || viewer.ask::<HistoryView>(Method::GET, "/v1/history?seconds=600&points=60");
    let of_two =
        |view: &HistoryView| view.points.iter().flatten().any(|point| point.devices == 2.0);
    assert!(within(PATIENCE, || of_two(&past().unwrap())), "{:?}", past());
    let view = past().unwrap();
    assert!(view.step_seconds == 10 && view.points.len() <= 60, "{view:?}");
    // Nonsense gets what is usual.
    let odd = "/v1/history?seconds=99999999999999&points=-1&points=x";
    assert!(viewer.ask::<HistoryView>(Method::GET, odd).unwrap().points.len() <= 1000);
}
