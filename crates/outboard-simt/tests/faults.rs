//! Faults end a launch with a description of what and where; nothing crashes, and the engine goes
//! on.

mod common;

use common::{Args, Rig};
use outboard_simt::{Fault, FaultKind, Launch, Space};

/// A kernel with one memory instruction in thread 5 of block 2; `address` computes `%at` from the
/// buffer's `%base`.
fn kernel(declarations: &str, body: &str) -> String {
    format!(
        r"
{declarations}
.visible .entry main(.param .u64 data)
{{
    .reg .pred %p<3>;
    .reg .b32 %t, %c, %r<6>;
    .reg .b64 %base, %at, %w<6>;
    ld.param.u64 %base, [data];
    mov.u32 %t, %tid.x;
    mov.u32 %c, %ctaid.x;
    setp.eq.u32 %p0, %t, 5;
    setp.eq.and.u32 %p0, %c, 2, %p0;
    @!%p0 bra end;
    {body}
end:
    ret;
}}"
    )
}

fn fault_of(declarations: &str, body: &str) -> Fault {
    let rig = Rig::new(&kernel(declarations, body));
    let buffer = rig.buffer(&[7u32; 64]);
    let fault =
        rig.try_launch("main", 4, 32, Args::default().push(buffer.addr)).expect_err("a fault");
    assert_eq!((fault.block, fault.thread), ([2, 0, 0], [5, 0, 0]), "{fault}");
    assert_eq!(fault.kernel, "main");
    // The engine is as good as before.
    let good = Rig::on(&rig.engine, &kernel("", "st.global.u32 [%base], 1;"));
    good.launch("main", 4, 32, Args::default().push(buffer.addr));
    assert_eq!(buffer.read()[0], 1);
    fault
}

fn assert_illegal(fault: &Fault, bytes: u32, expected: Space) {
    match fault.kind {
        FaultKind::IllegalAddress { size, space, .. } => {
            assert_eq!((size, space), (bytes, expected), "{fault}")
        }
        _ => panic!("{fault}"),
    }
    assert!(fault.line > 10, "{fault}");
}

#[test]
fn addresses_where_nothing_is() {
    assert_illegal(&fault_of("", "ld.global.u32 %r1, [%base+256];"), 4, Space::Global);
    assert_illegal(&fault_of("", "st.global.u32 [%base+-4], 1;"), 4, Space::Global);
    assert_illegal(&fault_of("", "ld.u64 %w1, [%base+1024];"), 8, Space::Generic);
    assert_illegal(&fault_of("", "mov.u64 %at, 0; st.u8 [%at], 1;"), 1, Space::Generic);
    assert_illegal(
        &fault_of(
            "",
            "mov.u64 %at, 0xfffffffffffffff0; ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%at];",
        ),
        16,
        Space::Global,
    );
    assert_illegal(&fault_of("", "atom.global.add.u32 %r1, [%base+4096], 1;"), 4, Space::Global);
    assert_illegal(
        &fault_of(".const .u32 k[4];", "mov.u64 %at, k; ld.const.u32 %r1, [%at+4096];"),
        4,
        Space::Const,
    );
}

#[test]
fn windows_have_ends() {
    let shared = ".shared .align 4 .b8 tile[64];";
    assert_illegal(
        &fault_of(shared, "mov.u32 %r1, tile; ld.shared.u32 %r2, [%r1+256];"),
        4,
        Space::Shared,
    );
    assert_illegal(
        &fault_of(shared, "mov.u32 %r1, 0x80000000; st.shared.u32 [%r1], 1;"),
        4,
        Space::Shared,
    );
    assert_illegal(&fault_of("", "mov.u64 %at, 1048576; st.local.u32 [%at], 1;"), 4, Space::Local);
    assert_illegal(&fault_of("", "mov.b64 %at, data; ld.param.u32 %r1, [%at+8];"), 4, Space::Param);
}

#[test]
fn addresses_must_be_aligned() {
    for (body, bytes) in
        [("ld.global.u32 %r1, [%base+2];", 4), ("st.global.v2.u32 [%base+4], {%r1,%r1};", 8)]
    {
        let fault = fault_of("", body);
        assert!(
            matches!(fault.kind, FaultKind::MisalignedAddress { size, .. } if size == bytes),
            "{fault}"
        );
    }
    let fault = fault_of(
        ".shared .align 8 .b8 tile[64];",
        "mov.u32 %r1, tile; ld.shared.u64 %w1, [%r1+4];",
    );
    assert!(
        matches!(fault.kind, FaultKind::MisalignedAddress { space: Space::Shared, .. }),
        "{fault}"
    );
}

#[test]
fn freed_memory_is_gone() {
    let rig = Rig::new(&kernel("", "ld.global.u32 %r1, [%base];"));
    let addr = rig.buffer(&[0u32; 4]).addr;
    assert!(rig.try_launch("main", 4, 32, Args::default().push(addr)).is_err());
}

#[test]
fn registered_host_memory_is_reached_at_its_own_address() {
    let rig = Rig::new(&kernel(
        "",
        "ld.global.u32 %r1, [%base]; add.u32 %r1, %r1, 1; st.global.u32 [%base+4], %r1;",
    ));
    let mut host = [41u32, 0];
    let addr = host.as_mut_ptr() as u64;
    assert!(rig.try_launch("main", 4, 32, Args::default().push(addr)).is_err());
    // SAFETY: the array outlives the registration.
    unsafe { rig.engine.memory().register_host(addr, 8) };
    rig.launch("main", 4, 32, Args::default().push(addr));
    rig.engine.memory().unregister_host(addr);
    // SAFETY: the kernel wrote through the address, which the compiler cannot know.
    assert_eq!(unsafe { std::ptr::read_volatile(&host[1]) }, 42);
    assert!(rig.try_launch("main", 4, 32, Args::default().push(addr)).is_err());
}

#[test]
fn traps() {
    assert_eq!(fault_of("", "trap;").kind, FaultKind::Trap);
    let fault =
        fault_of("", "mov.u64 %at, 12345; proto: .callprototype _ (); call %at, (), proto;");
    assert_eq!(fault.kind, FaultKind::InvalidCall(12345));
}

/// Half of a block waits at one barrier, half at another.
#[test]
fn a_block_that_cannot_go_on_is_a_fault() {
    let text = r"
.visible .entry stuck()
{
    .reg .pred %p; .reg .b32 %r;
    mov.u32 %r, %tid.x;
    setp.lt.u32 %p, %r, 32;
    @%p bra one;
    bar.sync 1, 64;
    ret;
one:
    bar.sync 2, 64;
    ret;
}";
    let fault = Rig::new(text).try_launch("stuck", 3, 64, Args::default()).expect_err("a deadlock");
    assert_eq!(fault.kind, FaultKind::Deadlock { waiting: 64 });
}

/// A fault in one block ends blocks that wait for it for ever.
#[test]
fn a_fault_ends_those_who_wait_for_it() {
    let text = r"
.global .u32 flag;
.visible .entry wait()
{
    .reg .pred %p; .reg .b32 %r;
    mov.u32 %r, %ctaid.x;
    setp.eq.u32 %p, %r, 0;
    @%p trap;
spin:
    ld.volatile.global.u32 %r, [flag];
    setp.eq.u32 %p, %r, 0;
    @%p bra spin;
    ret;
}";
    let fault = Rig::new(text).try_launch("wait", 8, 32, Args::default()).expect_err("the trap");
    assert_eq!((fault.kind, fault.block), (FaultKind::Trap, [0, 0, 0]));
}

#[test]
fn launches_that_cannot_be() {
    let rig =
        Rig::new(".visible .entry main() .reqntid 64 { ret; }\n.visible .entry free() { ret; }");
    let invalid = |name: &str, grid: [u32; 3], block: [u32; 3], shared: u32| {
        let mut launch = Launch::new(grid, block, &[]);
        launch.dynamic_shared = shared;
        matches!(
            rig.engine.launch(&rig.kernel(name), &launch),
            Err(Fault { kind: FaultKind::InvalidLaunch(_), .. })
        )
    };
    assert!(invalid("free", [0, 1, 1], [1, 1, 1], 0));
    assert!(invalid("free", [1, 1, 1], [1025, 1, 1], 0));
    assert!(invalid("free", [1, 1, 1], [1, 1, 1], 1 << 20));
    assert!(invalid("main", [1, 1, 1], [32, 1, 1], 0));
    assert!(!invalid("main", [1, 1, 1], [64, 1, 1], 0));
}

#[test]
fn what_cannot_be_loaded_is_named() {
    let text = format!(
        "{}.extern .func missing();\n.visible .entry main()\n{{\n call missing;\n ret;\n}}",
        common::HEADER
    );
    let module = outboard_ptx::parse(&text).expect("valid PTX");
    let error = common::engine().load(&[&module]).err().expect("an undefined symbol");
    assert_eq!(error, outboard_simt::LoadError::Undefined("missing".into()));
}

/// Modules are linked by name; each one's shared variables have their own place.
#[test]
fn modules_are_linked() {
    let parse =
        |text: &str| outboard_ptx::parse(&format!("{}{text}", common::HEADER)).expect("valid PTX");
    let main = parse(
        r"
.extern .func (.param .b32 r) helper(.param .b32 a);
.extern .global .u32 shared_with_helper;
.shared .u32 mine;
.visible .entry main(.param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %rd;
    ld.param.u64 %rd, [out];
    st.shared.u32 [mine], 1000;
    {
        .param .b32 a; .param .b32 r;
        st.param.b32 [a], 5;
        call (r), helper, (a);
        ld.param.b32 %r0, [r];
    }
    ld.shared.u32 %r1, [mine];
    ld.global.u32 %r2, [shared_with_helper];
    add.u32 %r0, %r0, %r1;
    add.u32 %r0, %r0, %r2;
    st.global.u32 [%rd], %r0;
    ret;
}",
    );
    let helper = parse(
        r"
.visible .global .u32 shared_with_helper = 7;
.shared .u32 mine;
.visible .func (.param .b32 r) helper(.param .b32 a)
{
    .reg .b32 %r<2>;
    ld.param.b32 %r0, [a];
    st.shared.u32 [mine], %r0;
    add.u32 %r0, %r0, 1;
    st.param.b32 [r], %r0;
    ret;
}",
    );
    let engine = common::engine();
    let program = engine.load(&[&main, &helper]).expect("linked");
    let rig = Rig { engine, program };
    let buffer = rig.buffer(&[0u32]);
    rig.launch("main", 1, 1, Args::default().push(buffer.addr));
    assert_eq!(buffer.read(), [1013]);
}
