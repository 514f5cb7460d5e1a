//! Links: which inputs there are, what archives give, what is missing.

use outboard_abi::{CUjitInputType_enum as Input, CUresult};
use outboard_front::backend::{
    Backend, JitLog, JitOptions, LinkInput, Linking, ObjectId, Result, StreamId,
};

use crate::fixture::{Context, fresh};

const HEADER: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// A kernel that stores what `function` gives.
fn kernel(function: &str) -> String {
    format!(
        "{HEADER}.extern .func (.param .b32 r) {function}();\n.visible .entry k(.param .u64 out) {{\n\
         .reg .b32 %r1; .reg .b64 %rd<3>; ld.param.u64 %rd1, [out]; cvta.to.global.u64 %rd2, %rd1;\n\
         {{ .param .b32 r; call.uni (r), {function}, (); ld.param.b32 %r1, [r]; }} st.global.u32 [%rd2], %r1; ret; }}\n"
    )
}

/// A function that gives a number.
fn function(name: &str, number: u32) -> String {
    format!(
        "{HEADER}.visible .func (.param .b32 r) {name}() {{ st.param.b32 [r], {number}; ret; }}\n"
    )
}

/// A container with one PTX text.
fn container(ptx: &str) -> Vec<u8> {
    let payload = ptx.len().next_multiple_of(8);
    let mut entry = vec![0u8; 64];
    entry[0] = 1;
    entry[2..4].copy_from_slice(&0x0101u16.to_le_bytes());
    entry[4..8].copy_from_slice(&64u32.to_le_bytes());
    entry[8..16].copy_from_slice(&(payload as u64).to_le_bytes());
    entry[0x1a] = 8;
    entry[0x1c..0x20].copy_from_slice(&80u32.to_le_bytes());
    entry.extend_from_slice(ptx.as_bytes());
    entry.resize(64 + payload, 0);
    let mut out = 0xBA55_ED50u32.to_le_bytes().to_vec();
    out.extend_from_slice(&[1, 0, 16, 0]);
    out.extend_from_slice(&(entry.len() as u64).to_le_bytes());
    out.extend_from_slice(&entry);
    out
}

/// A host object with one section, `name`.
fn object(name: &str, section: &[u8]) -> Vec<u8> {
    let mut names = vec![0u8];
    names.extend_from_slice(name.as_bytes());
    names.push(0);
    let (at, names_at) = (64usize, 64 + section.len());
    let table = (names_at + names.len()).next_multiple_of(8);
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    out.resize(64, 0);
    out[0x28..0x30].copy_from_slice(&(table as u64).to_le_bytes());
    out[0x3a..0x40].copy_from_slice(&[64, 0, 3, 0, 2, 0]);
    out.extend_from_slice(section);
    out.extend_from_slice(&names);
    out.resize(table + 64, 0);
    for (name, kind, offset, size) in
        [(1u32, 1u32, at, section.len()), (0, 3, names_at, names.len())]
    {
        let mut row = [0u8; 64];
        row[..4].copy_from_slice(&name.to_le_bytes());
        row[4..8].copy_from_slice(&kind.to_le_bytes());
        row[0x18..0x20].copy_from_slice(&(offset as u64).to_le_bytes());
        row[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
        out.extend_from_slice(&row);
    }
    out
}

fn archive(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut out = b"!<arch>\n".to_vec();
    for (name, body) in members {
        out.extend_from_slice(
            format!("{:<48}{:<10}`\n", format!("{name}/"), body.len()).as_bytes(),
        );
        out.extend_from_slice(body);
        out.resize(out.len().next_multiple_of(2), b'\n');
    }
    out
}

struct Link<'c> {
    ctx: &'c Context,
    id: ObjectId,
    log: JitLog,
}

impl<'c> Link<'c> {
    fn new(ctx: &'c Context) -> Link<'c> {
        let id = fresh();
        ctx.cpu.link_create(ctx.id, id, &JitOptions::default()).unwrap();
        Link { ctx, id, log: JitLog::default() }
    }

    fn add(&mut self, kind: Input, data: &[u8]) -> Result<()> {
        let options = JitOptions::default();
        let input = LinkInput { kind: kind.0, data, name: "input", options: &options };
        self.ctx.cpu.link_add(self.ctx.id, self.id, input, &mut self.log)
    }

    fn complete(&mut self) -> Result<Vec<u8>> {
        self.ctx.cpu.link_complete(self.ctx.id, self.id, &mut self.log)
    }

    /// What the kernel of the linked image stores.
    fn run(&mut self) -> u32 {
        let image =
            self.complete().unwrap_or_else(|error| panic!("{}: {}", error.0, self.log.error));
        let module = self.ctx.load_parts(&[&image]).unwrap();
        let word = self.ctx.word();
        self.ctx.launch(&self.ctx.function(module, "k"), 1, &[word], StreamId::LEGACY).unwrap();
        self.ctx.read(word, 1, StreamId::LEGACY)[0]
    }
}

#[test]
fn containers_and_objects() {
    let ctx = Context::new();
    for section in [".nv_fatbin", "__nv_relfatbin"] {
        let mut link = Link::new(&ctx);
        link.add(Input::CU_JIT_INPUT_FATBINARY, &container(&kernel("f"))).unwrap();
        let two = [container(&function("f", 5)), container(&function("g", 6))].concat();
        link.add(Input::CU_JIT_INPUT_OBJECT, &object(section, &two)).unwrap();
        assert_eq!(link.run(), 5);
    }
}

#[test]
fn an_archive_gives_what_is_missing_and_no_more() {
    let ctx = Context::new();
    let member = |name: &str, number| object("__nv_relfatbin", &container(&function(name, number)));
    let through = format!(
        "{HEADER}.extern .func (.param .b32 r) deep();\n.visible .func (.param .b32 r) f() {{ .reg .b32 %r1;\n\
         {{ .param .b32 q; call.uni (q), deep, (); ld.param.b32 %r1, [q]; }} st.param.b32 [r], %r1; ret; }}\n"
    );
    let library = archive(&[
        ("deep.o", member("deep", 9)),
        ("f.o", object("__nv_relfatbin", &container(&through))),
        // Would be a second definition.
        ("again.o", member("k", 1)),
        // Never looked at.
        ("broken.o", object("__nv_relfatbin", &container("nonsense"))),
        ("text.o", b"not an object".to_vec()),
    ]);
    let mut link = Link::new(&ctx);
    link.add(Input::CU_JIT_INPUT_LIBRARY, &library).unwrap();
    link.add(Input::CU_JIT_INPUT_PTX, kernel("f").as_bytes()).unwrap();
    assert!(
        link.log.info.contains("broken.o") && link.log.info.contains("text.o"),
        "{}",
        link.log.info
    );
    assert_eq!(link.run(), 9);
}

#[test]
fn what_was_linked_can_be_linked_again() {
    let ctx = Context::new();
    let mut first = Link::new(&ctx);
    first.add(Input::CU_JIT_INPUT_PTX, function("f", 3).as_bytes()).unwrap();
    let image = first.complete().unwrap();
    let mut second = Link::new(&ctx);
    second.add(Input::CU_JIT_INPUT_CUBIN, &image).unwrap();
    second.add(Input::CU_JIT_INPUT_PTX, kernel("f").as_bytes()).unwrap();
    assert_eq!(second.run(), 3);
}

#[test]
fn refusals_say_why() {
    let ctx = Context::new();
    let mut link = Link::new(&ctx);
    assert_eq!(link.complete(), Err(CUresult::CUDA_ERROR_INVALID_VALUE), "nothing to link");
    link.add(Input::CU_JIT_INPUT_PTX, kernel("nowhere").as_bytes()).unwrap();
    assert!(link.complete().is_err());
    assert!(link.log.error.contains("nowhere"), "{}", link.log.error);
    let twice = [function("f", 1), function("f", 2)];
    let mut link = Link::new(&ctx);
    for text in &twice {
        link.add(Input::CU_JIT_INPUT_PTX, text.as_bytes()).unwrap();
    }
    assert!(link.complete().is_err());
    assert!(link.log.error.contains("more than once"), "{}", link.log.error);
    assert_eq!(
        link.add(Input::CU_JIT_INPUT_PTX, b"nonsense"),
        Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
    );
    assert_eq!(
        link.add(Input::CU_JIT_INPUT_LIBRARY, b"nonsense"),
        Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
    );
    assert_eq!(
        link.add(Input::CU_JIT_INPUT_OBJECT, b"nonsense"),
        Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
    );
    let machine = object(".text.k", b"machine code");
    assert_eq!(
        link.add(Input::CU_JIT_INPUT_CUBIN, &machine),
        Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU)
    );
    assert!(link.log.error.contains("PTX"), "{}", link.log.error);
}

#[test]
fn variables_that_the_program_gives_addresses_to() {
    let ctx = Context::new();
    let text = format!(
        "{HEADER}.extern .global .align 4 .u32 given;\n.visible .entry k() {{ .reg .b32 %r<3>;\n\
         ld.global.u32 %r1, [given]; add.u32 %r2, %r1, 1; st.global.u32 [given], %r2; ret; }}\n"
    );
    let word = ctx.word();
    let (id, mut log) = (fresh(), JitLog::default());
    let options = JitOptions { symbols: vec![("given".into(), word)], ..JitOptions::default() };
    let image =
        outboard_front::backend::Image { parts: &[text.as_bytes()], options: &options, sm: 90 };
    ctx.cpu.module_load(ctx.id, id, image, &mut log).unwrap();
    ctx.launch(&ctx.function(id, "k"), 1, &[], StreamId::LEGACY).unwrap();
    assert_eq!(ctx.read(word, 1, StreamId::LEGACY), [1]);
    let (error, why) = ctx.load(&text).unwrap_err();
    assert_eq!(error, CUresult::CUDA_ERROR_INVALID_PTX);
    assert!(why.contains("given"), "{why}");
}
