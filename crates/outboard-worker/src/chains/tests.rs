use super::*;

use crate::recorded;

const SHAPE: Shape = Shape { grid: (1, 1, 1), block: (32, 1, 1), shared: 0 };
const PLACE: Place = Place { ctx: ContextId(1), stream: StreamId(2) };

fn kernel(function: usize, params: usize) -> Kernel {
    Kernel { function, shape: SHAPE, params }
}

/// Lengths of the rows that launches of these functions come in.
fn rows(functions: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let mut chains = Chains::default();
    let mut rows = Vec::new();
    for function in functions {
        if chains.hold((PLACE, core::ptr::null_mut()), kernel(function, 0), &[]) {
            rows.push(chains.held.kernels.len());
            chains.held.clear();
        }
    }
    rows
}

#[test]
fn a_kernel_by_itself_comes_in_long_rows() {
    assert_eq!(rows([7; 64]), [MOST_KERNELS; 4]);
}

#[test]
fn the_same_launches_come_in_the_same_rows_wherever_they_begin() {
    // As of a step with two dozen kernels, the handles of which are some way apart.
    let step = |from: usize| {
        (from..from + 24 * 40)
            .map(|index| 0x5500_0000_1000 + (index % 24) * (0x240 + index % 24 % 5 * 32))
    };
    let (one, other) = (rows(step(0)), rows(step(5)));
    assert!(one.iter().all(|row| (LEAST_KERNELS..=MOST_KERNELS).contains(row)));
    // After a few steps both are made of the same lengths, in the same order.
    let end = |rows: &[usize]| rows[rows.len() - 12..].to_vec();
    let (one, other) = (end(&one), end(&other));
    assert!(
        (0..12).any(|by| one[by..] == other[..12 - by] || other[by..] == one[..12 - by]),
        "{one:?} {other:?}"
    );
}

#[test]
fn parameters_of_kernels_are_told_apart() {
    let kernels = [kernel(1, 3), kernel(2, 0), kernel(3, 2)];
    let parts: Vec<&[u8]> = each(&kernels, &[1, 2, 3, 4, 5]).map(|(_, params)| params).collect();
    assert_eq!(parts, [&[1, 2, 3][..], &[], &[4, 5]]);
}

#[test]
fn launches_elsewhere_do_not_go_on_a_row() {
    let mut chains = Chains::default();
    assert!(chains.goes_on_in(PLACE) && chains.is_empty());
    chains.hold((PLACE, core::ptr::null_mut()), kernel(1, 0), &[]);
    assert!(chains.goes_on_in(PLACE) && !chains.is_empty());
    assert!(
        !chains.goes_on_in(Place { stream: StreamId(3), ..PLACE })
            && !chains.goes_on_in(Place { ctx: ContextId(2), ..PLACE })
    );
}

const OTHER_STREAM: Place = Place { stream: StreamId(3), ..PLACE };
const OTHER_CONTEXT: Place = Place { ctx: ContextId(5), ..PLACE };

/// A chain in each of three places, each with kernel 7 and one of its own, 1, 2 and 3.
fn three_chains() -> Chains {
    let mut chains = Chains::default();
    for (own, place) in [(1, PLACE), (2, OTHER_STREAM), (3, OTHER_CONTEXT)] {
        let chain = Chain {
            kernels: vec![kernel(7, 0), kernel(own, 0)],
            nodes: Vec::new(),
            graph: Handle::new(core::ptr::null_mut()),
            exec: Handle::new((0x100 * own) as *mut _),
            params: Vec::new(),
            used: 0,
        };
        chains.made.insert((place, own as u64), chain);
    }
    chains
}

/// The chains that an effect of a message in the first context leaves, by their own kernels, and
/// the places in which launches may still be held back. What the driver is told is checked.
fn left_by(effect: Effect) -> (Vec<u64>, Vec<Place>) {
    let (table, mut chains) = (recorded::table(), three_chains());
    // The client's names of functions are the handles and 0x40.
    let function = |name: ObjectId| {
        (name.0 > 0x40).then(|| core::ptr::without_provenance_mut(name.0 as usize - 0x40))
    };
    chains.affect(table, PLACE.ctx, effect, function);
    let mut left: Vec<u64> = chains.made.keys().map(|(_, own)| *own).collect();
    left.sort_unstable();
    let mut ended: Vec<String> = recorded::calls();
    ended.retain(|call| call.starts_with("cuGraphExecDestroy"));
    ended.sort_unstable();
    let gone = (1..=3).filter(|own| !left.contains(own));
    let gone: Vec<String> =
        gone.map(|own| format!("cuGraphExecDestroy({:#x})", 0x100 * own)).collect();
    assert_eq!(ended, gone, "{effect:?}");
    let places = [PLACE, OTHER_STREAM, OTHER_CONTEXT];
    (left, places.into_iter().filter(|place| chains.may_hold(*place)).collect())
}

#[test]
fn each_effect_ends_what_it_says() {
    let anywhere = vec![PLACE, OTHER_STREAM, OTHER_CONTEXT];
    let stream = PLACE.stream;
    for (effect, left, places) in [
        (Effect::Ends, vec![], anywhere.clone()),
        (Effect::EndsInContext, vec![3], anywhere.clone()),
        // The stream of that name in another context is another one.
        (Effect::EndsInStream(stream), vec![2, 3], anywhere.clone()),
        (Effect::EndsWithFunction(ObjectId(0x42)), vec![1, 3], anywhere.clone()),
        (Effect::EndsWithFunction(ObjectId(0x47)), vec![], anywhere.clone()),
        (Effect::EndsWithFunction(ObjectId(0x12)), vec![1, 2, 3], anywhere.clone()),
        (Effect::BarsStream(stream), vec![2, 3], vec![OTHER_STREAM, OTHER_CONTEXT]),
        (Effect::Bars, vec![], vec![]),
    ] {
        assert_eq!(left_by(effect), (left, places), "{effect:?}");
    }
}

#[test]
fn a_stream_is_barred_until_it_or_its_context_ends() {
    let (table, mut chains) = (recorded::table(), Chains::default());
    let none = |_| None;
    let bar = Effect::BarsStream(PLACE.stream);
    chains.affect(table, PLACE.ctx, bar, none);
    assert!(!chains.may_hold(PLACE) && chains.may_hold(OTHER_STREAM));
    chains.affect(table, PLACE.ctx, Effect::EndsInStream(PLACE.stream), none);
    assert!(chains.may_hold(PLACE), "a stream that gets its name may have chains");
    chains.affect(table, PLACE.ctx, bar, none);
    chains.end_context(table, OTHER_CONTEXT.ctx);
    assert!(!chains.may_hold(PLACE));
    chains.end_context(table, PLACE.ctx);
    assert!(chains.may_hold(PLACE));
}

#[test]
fn no_client_has_the_worker_note_more_streams_than_it_may_have() {
    let (table, mut chains) = (recorded::table(), Chains::default());
    let mut names = 1..;
    while chains.may_hold(PLACE) {
        let stream = StreamId(0x1000 + names.next().unwrap());
        chains.affect(table, PLACE.ctx, Effect::BarsStream(stream), |_| None);
        assert!(chains.special.len() <= 1 << 14);
    }
    assert!(chains.off, "launches are made one by one then");
}
