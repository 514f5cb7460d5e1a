//! What the screen of a pool shows.

use jiff::{SignedDuration, Timestamp};
use outboard_pool::words::{Capability, Share};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;

use super::*;

fn device(at: usize, free_percent: u8, leases: &[u64]) -> DeviceView {
    DeviceView {
        uuid: format!("GPU-{at}").parse().unwrap(),
        model: "NVIDIA H100 80GB".into(),
        capability: Capability { major: 9, minor: 0 },
        memory_bytes: 80 << 30,
        free_bytes: (80 << 30) / 100 * u64::from(free_percent),
        free_percent,
        load_percent: 100 - free_percent,
        health: Health::Well,
        leases: leases.iter().copied().map(LeaseNumber).collect(),
    }
}

fn server(name: &str, condition: Condition, devices: Vec<DeviceView>) -> ServerView {
    ServerView {
        name: name.parse().unwrap(),
        address: format!("{name}:9470"),
        release: "0.1.0".into(),
        driver: "580".into(),
        labels: Default::default(),
        condition,
        because: None,
        heard: None,
        devices,
    }
}

fn lease(number: u64, owner: &str, device: &str, usage: Use) -> LeaseView {
    let now = Timestamp::now();
    LeaseView {
        number: LeaseNumber(number),
        owner: owner.parse().unwrap(),
        group: "everybody".parse().unwrap(),
        asked_by: owner.parse().unwrap(),
        purpose: None,
        since: now - SignedDuration::from_secs(61),
        expires: now + SignedDuration::from_secs(50),
        renewable_until: now + SignedDuration::from_secs(50),
        sessions: 2,
        used_bytes: 3 << 30,
        over: None,
        devices: vec![Granted {
            server: "gpu1".parse().unwrap(),
            device: device.parse().unwrap(),
            memory_bytes: 1 << 30,
            usage,
        }],
    }
}

fn view() -> PoolView {
    let quarter = Use::Shared(Share::try_from(25).unwrap());
    let ticket = TicketView {
        ticket: 9,
        place: 1,
        owner: "eve".parse().unwrap(),
        asked_by: "eve".parse().unwrap(),
        purpose: None,
        since: Timestamp::now() - SignedDuration::from_secs(5),
        devices: 4,
        memory_bytes: 1 << 30,
        usage: Use::Exclusive,
        because: "1 of the 4 devices is free".into(),
    };
    PoolView {
        release: "0.1.0".into(),
        policy: "pack".into(),
        servers: vec![
            server("gpu1", Condition::Ready, vec![device(0, 0, &[1]), device(1, 75, &[2])]),
            server("gpu2", Condition::Silent, vec![device(2, 100, &[])]),
        ],
        leases: vec![lease(1, "ada", "GPU-0", Use::Exclusive), lease(2, "bob", "GPU-1", quarter)],
        queue: vec![ticket],
        owners: Vec::new(),
        next: None,
    }
}

fn state() -> PoolState {
    let mut state = PoolState::default();
    state.take(view());
    state
}

fn screen(state: &mut PoolState, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let line =
        |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn it_fits_the_usual_terminal() {
    let lines = screen(&mut state(), 80, 24);
    assert_eq!(lines[0], "pool 0.1.0  1.2/2 devices taken  62% busy  1/2 servers ready");
    assert_eq!(words(&lines[1])[..3], ["DEVICE", "MODEL", "TAKEN"]);
    assert!(lines[2].starts_with("gpu1/0") && lines[2].contains("[|||||] 100%"), "{}", lines[2]);
    assert!(lines[2].contains("0 B/80.0 GiB") && lines[2].ends_with("ada"), "{}", lines[2]);
    assert!(lines[3].contains("[|    ]  25%") && lines[3].ends_with("bob"), "{}", lines[3]);
    assert!(lines[4].starts_with("gpu2/0") && lines[4].contains("silent"), "{}", lines[4]);
    assert_eq!(words(&lines[5])[..2], ["LEASE", "OWNER"]);
    assert_eq!(words(&lines[6])[..6], ["1", "ada", "1m01s", "2", "3.0", "GiB"]);
    assert!(lines[6].ends_with("gpu1/0") && lines[7].ends_with("gpu1/1(25%)"), "{lines:?}");
    assert_eq!(words(&lines[8])[..2], ["PLACE", "OWNER"]);
    assert!(lines[9].contains("4 whole 1.0 GiB") && lines[9].contains("1 of the 4"), "{lines:?}");
    assert!(lines[23].starts_with("q quit"), "{}", lines[23]);
}

#[test]
fn any_size_of_terminal_will_do() {
    for (width, height) in [(1, 1), (10, 3), (40, 6), (60, 10), (100, 30), (200, 60)] {
        screen(&mut state(), width, height);
        screen(&mut PoolState::default(), width, height);
    }
    let lines = screen(&mut PoolState::default(), 80, 12);
    for none in ["the pool has no devices", "nobody has a lease", "nobody waits"] {
        assert!(lines.iter().any(|line| line == none), "{none}: {lines:?}");
    }
}

#[test]
fn lists_share_the_room_by_what_they_need() {
    assert_eq!(divide(10, [100, 100, 100]), [4, 3, 3]);
    assert_eq!(divide(10, [100, 2, 2]), [6, 2, 2]);
    assert_eq!(divide(30, [3, 3, 3]), [3, 3, 3]);
    assert_eq!(divide(0, [3, 3, 3]), [0, 0, 0]);
}

#[test]
fn keys_scroll_the_chosen_list_pause_and_end() {
    let mut state = state();
    let mut many = view();
    many.servers = (0..40)
        .map(|at| server(&format!("gpu{at}"), Condition::Ready, vec![device(at, 100, &[])]))
        .collect();
    state.take(many);
    state.key(KeyCode::PageDown);
    assert!(screen(&mut state, 80, 24)[2].starts_with("gpu10/0"));
    // Not past the last screen.
    (0..9).for_each(|_| assert!(state.key(KeyCode::PageDown)));
    assert!(screen(&mut state, 80, 24).iter().any(|line| line.starts_with("gpu39/0")));
    state.key(KeyCode::Home);
    state.key(KeyCode::Tab);
    state.key(KeyCode::Down);
    let lines = screen(&mut state, 80, 24);
    assert!(lines[2].starts_with("gpu0/0"), "another list is scrolled: {lines:?}");
    state.key(KeyCode::Char('p'));
    state.take(view());
    assert_eq!(state.rows(List::Devices), 40, "nothing changes meanwhile");
    state.key(KeyCode::Char('p'));
    state.take(view());
    assert_eq!(state.rows(List::Devices), 3);
    assert!(!state.key(KeyCode::Char('q')) && !state.key(KeyCode::Esc));
}

#[test]
fn a_broker_that_is_away_leaves_what_was_seen() {
    let mut state = state();
    state.miss("the broker is away".into());
    let lines = screen(&mut state, 120, 24);
    assert!(
        lines[0].ends_with("the broker is away") && lines[2].starts_with("gpu1/0"),
        "{lines:?}"
    );
    state.take(view());
    assert!(!screen(&mut state, 120, 24)[0].contains("away"));
}

#[test]
fn words_of_others_control_no_terminal() {
    let mut hostile = view();
    hostile.servers[0].devices[0].model = "a\u{1b}[2J".into();
    hostile.queue[0].because = "b\u{7}\n".into();
    let mut state = PoolState::default();
    state.take(hostile);
    let text = text(&state);
    assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'), "{text}");
    assert!(text.contains("PLACE") && text.contains("gpu1/1(25%)"), "{text}");
}
