use super::*;

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
    assert_eq!(rows([7; 64]), [MOST; 4]);
}

#[test]
fn the_same_launches_come_in_the_same_rows_wherever_they_begin() {
    // As of a step with two dozen kernels, the handles of which are some way apart.
    let step = |from: usize| {
        (from..from + 24 * 40)
            .map(|index| 0x5500_0000_1000 + (index % 24) * (0x240 + index % 24 % 5 * 32))
    };
    let (one, other) = (rows(step(0)), rows(step(5)));
    assert!(one.iter().all(|row| (FEWEST..=MOST).contains(row)));
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
