use super::*;

/// What the kernel's machine for filters makes of a call.
fn run(program: &[sock_filter], processor: u32, number: u32, arguments: [u32; 6]) -> u32 {
    let (mut value, mut at) = (0, 0);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let jump = |holds: bool| usize::from(if holds { jt } else { jf });
        match code {
            LOAD => {
                value = match k {
                    NUMBER => number,
                    PROCESSOR => processor,
                    _ => arguments[(k as usize - ARGUMENTS as usize) / 8],
                }
            }
            MASK => value &= k,
            EQUAL => at += jump(value == k),
            ABOVE => at += jump(value > k),
            AT_LEAST => at += jump(value >= k),
            JUMP => at += k as usize,
            RETURN => return k,
            other => panic!("no such step: {other}"),
        }
    }
}

fn filter() -> Filter {
    let is = |argument, values: &[u32], is_one| Test {
        argument,
        mask: u32::MAX,
        values: values.to_vec(),
        is_one,
    };
    let judged = |call, cases, otherwise| Judged { call, cases, otherwise };
    Filter {
        unknown: vec![435],
        judged: vec![
            judged(
                44,
                vec![(
                    vec![Test { argument: 3, mask: 0x20, values: vec![0], is_one: true }],
                    Verdict::Allowed,
                )],
                Verdict::Fails(1),
            ),
            judged(
                54,
                vec![
                    (vec![is(0, &[1], true), is(1, &[7, 8, 9], true)], Verdict::Allowed),
                    (vec![is(0, &[6, 7], true), is(1, &[30, 31], false)], Verdict::Asked),
                ],
                Verdict::Fails(2),
            ),
        ],
        listed: vec![(BTreeSet::from([0, 1, 2, 9, 11]), Verdict::Allowed)],
        otherwise: Verdict::Fails(3),
        newer: Verdict::Fails(4),
    }
}

#[test]
fn calls_are_judged_as_they_are_listed() {
    let program = filter().program();
    let fails = |error: u32| libc::SECCOMP_RET_ERRNO | error;
    let (allowed, asked) = (libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_USER_NOTIF);
    let judge = |number, arguments| run(&program, THIS_PROCESSOR, number, arguments);
    for number in 0..15 {
        let right = if [0, 1, 2, 9, 11].contains(&number) { allowed } else { fails(3) };
        assert_eq!(judge(number, [0; 6]), right, "{number}");
    }
    assert_eq!(judge(44, [0, 0, 0, 0x1f, 0, 0]), allowed);
    assert_eq!(judge(44, [0, 0, 0, 0x21, 0, 0]), fails(1));
    for (level, name, right) in [
        (1, 7, allowed),
        (1, 9, allowed),
        (1, 10, fails(2)),
        (6, 7, asked),
        (7, 32, asked),
        (6, 30, fails(2)),
        (7, 31, fails(2)),
        (5, 7, fails(2)),
    ] {
        assert_eq!(judge(54, [level, name, 0, 0, 0, 0]), right, "{level} {name}");
    }
    let nosys = fails(libc::ENOSYS as u32);
    assert_eq!(judge(435, [0; 6]), nosys);
    assert_eq!(judge(NEWEST as u32 + 1, [0; 6]), fails(4));
    assert_eq!(judge(X32 | 1, [0; 6]), nosys);
    assert_eq!(run(&program, 0x4000_0003, 1, [0; 6]), nosys, "another processor's numbers");
}
