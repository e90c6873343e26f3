use std::{
    collections::BTreeSet,
    io::Write as _,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::*;

/// A table of cases, a row each: what is given, and what comes of it.
macro_rules! cases {
    ($($given:expr => $expected:expr;)*) => {
        [$(($given, $expected)),*]
    };
}

#[test]
fn a_cpp_function_is_called_what_its_source_calls_it() {
    for (symbol, name) in cases! {
        "_ZN7rocksdb6DBImpl7SyncWALEv" => "rocksdb::DBImpl::SyncWAL";
        "_Z3fooi" => "foo";
        "_Z3fooIiEvT_" => "foo<int>";
        "_ZNK3FooixEi" => "Foo::operator[]";
        "_ZltI3FooEbT_S1_" => "operator< <Foo>";
        "_ZN3FoocvPKcEv" => "Foo::operator char const*";
        "_ZN3FooC2Ei" => "Foo::Foo";
        "_ZN3FooIiED0Ev" => "Foo<int>::~Foo";
        "_ZNSt6vectorIS_IiSaIiEESaIS1_EE9push_backERKS1_"
            => "std::vector<std::vector<int, std::allocator<int> >, std::allocator<std::vector<int, std::allocator<int> > > >::push_back";
        "_ZNSsC1Ev" => "std::basic_string<char, std::char_traits<char>, std::allocator<char> >::basic_string";
        "_ZNSs6appendEPKc" => "std::string::append";
        "_ZN12_GLOBAL__N_13fooEv" => "(anonymous namespace)::foo";
        "_ZN3foo3barB5cxx11Ev" => "foo::bar[abi:cxx11]";
        "_ZZNK3foo3barEvENKUlRKNS_6StatusEE0_clES2_"
            => "foo::bar() const::{lambda(foo::Status const&)#2}::operator()";
        "_ZZ3fooIiEvT_ENKUlS_E_clEi" => "foo<int>(int)::{lambda(foo)#1}::operator()";
        "_ZN1AILb1ELj5ELi4ELin3EL4Enum2EE1fEv" => "A<true, 5u, 4, -3, (Enum)2>::f";
        "_ZN1AIXadL_Z3fooiEEJidEJEE1fEv" => "A<&(foo(int)), int, double>::f";
        "_ZN1AIPFvidEE1fEv" => "A<void (*)(int, double)>::f";
        "_ZN1AIPFPFvvEiEE1fEv" => "A<void (*(*)(int))()>::f";
        "_ZN1AIRA3_A4_cE1fEv" => "A<char (&) [3][4]>::f";
        "_ZN1AIM1BKFivEE1fEv" => "A<int (B::*)() const>::f";
        "_ZN1AIM1BiE1fEv" => "A<int B::*>::f";
        "_ZNKSt8functionIFvvEEclEv" => "std::function<void ()>::operator()";
    } {
        assert_eq!(demangle(symbol).as_deref(), Some(name), "{symbol}");
    }
}

#[test]
fn a_rust_function_is_called_by_its_path_without_hash() {
    for (symbol, name) in cases! {
        "_ZN9ckb_chain6verify17ConsumeUnverified3run17h0123456789abcdefE"
            => "ckb_chain::verify::ConsumeUnverified::run";
        "_ZN9ckb_chain6verify3run17h0123456789abcdefE.llvm.1234567" => "ckb_chain::verify::run";
        "_ZN68_$LT$ckb_chain..verify..Consume$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE"
            => "<ckb_chain::verify::Consume as core::ops::drop::Drop>::drop";
        "_RNvNtCs1234_7mycrate3foo3bar" => "mycrate::foo::bar";
        "_RNvMs_NtCs1234_7mycrate3fooNtB4_3Baz3bar" => "mycrate::foo::Baz::bar";
    } {
        assert_eq!(demangle(symbol).as_deref(), Some(name), "{symbol}");
    }
}

#[test]
fn a_method_of_a_type_is_called_by_the_type_s_path_and_a_trait_s_is_not() {
    for (name, path) in [
        ("<a::B>::c", Some("a::B::c")),
        (
            "<a::B<c::D, fn() -> e::F>>::g::{closure#0}",
            Some("a::B<c::D, fn() -> e::F>::g::{closure#0}"),
        ),
        ("<a::B as c::D>::e", None),
        ("<<a::B as c::D>::E>::f", None),
        ("<dyn a::B>::c", None),
        ("<[a::B]>::c", None),
        ("<&a::B>::c", None),
        ("<fn(a::B)>::c", None),
        ("<str>::len", None),
        ("a::b", None),
        ("<a::B", None),
        ("<a::B>", None),
    ] {
        assert_eq!(path_of_method(name).as_deref(), path, "{name}");
    }
}

#[test]
fn what_a_compiler_added_is_called_by_what_it_was_added_to() {
    for (symbol, name) in cases! {
        // Of CKB 0.210.
        "_ZThn32_NK7rocksdb12_GLOBAL__N_129ReverseBytewiseComparatorImpl7CompareERKNS_5SliceES4_"
            => "rocksdb::(anonymous namespace)::ReverseBytewiseComparatorImpl::Compare{thunk}";
        "_ZThn32_N7rocksdb12_GLOBAL__N_122BytewiseComparatorImplD0Ev"
            => "rocksdb::(anonymous namespace)::BytewiseComparatorImpl::~BytewiseComparatorImpl{thunk}";
        "_ZThn16_N1AIiED1Ev" => "A<int>::~A{thunk}";
        "_ZTh4000000_N1A1fEv.llvm.12" => "A::f{thunk}";
        "_ZTv0_n24_NSt9strstreamD0Ev" => "std::strstream::~strstream{thunk}";
        "_ZTcvn16_n24_h8_N1A1fEv" => "A::f{thunk}";
        "_ZTW12perf_context" => "perf_context{thread-local}";
        "_ZTHN7rocksdb12perf_contextE" => "rocksdb::perf_context{thread-local init}";
        // What was added to nothing that has a name, and what is no function.
        "_ZThn16_" => "_ZThn16_";
        "_ZThn_N1A1fEv" => "_ZThn_N1A1fEv";
        "_ZTv8_N1A1fEv" => "_ZTv8_N1A1fEv";
        "_ZTch8_N1A1fEv" => "_ZTch8_N1A1fEv";
        "_ZTV3Foo" => "_ZTV3Foo";
        // All others as ever.
        "_ZN1A1fEv" => "A::f";
        "foo.llvm.1234" => "foo";
    } {
        assert_eq!(called(symbol), name, "{symbol}");
    }
    let long = format!("_ZThn8_{}{}v", 2000, "x".repeat(2000));
    assert_eq!(called(&long), long);
}

/// `c++filt` says `non-virtual thunk to`, and `virtual thunk to`, before the name.
#[test]
fn thunks_are_to_what_cppfilt_says() {
    let symbols = libstdcpp();
    let is_thunk = |symbol: &&String| symbol.starts_with("_ZTh") || symbol.starts_with("_ZTv");
    let symbols: Vec<&String> = symbols.iter().filter(is_thunk).collect();
    assert!(symbols.len() > 20, "{}", symbols.len());
    for (symbol, expected) in symbols.iter().zip(filtered(&symbols)) {
        let (_, name) = expected.split_once("thunk to ").unwrap();
        // With parameters, whatever it is asked for.
        let called = called(symbol);
        let function = called.strip_suffix("{thunk}").unwrap();
        assert!(
            name.strip_prefix(function).unwrap().starts_with('('),
            "{symbol}"
        );
    }
}

#[test]
fn what_is_neither_or_no_function_has_no_other_name() {
    for symbol in [
        "rocksdb_write",
        "",
        "_Z",
        "_ZN",
        "_ZNE",
        "_ZZ",
        "_R",
        "_ZN3FooE3",
        "_ZThn8_N7rocksdb13CompactionJob3RunEv",
        "_ZTV3Foo",
        "_ZN99999999999999999999rocksdbEv",
        "_ZN7rocksdb3fooIXplLi1ELi2EEE3barEv",
    ] {
        let name = demangle(symbol).filter(|name| name != "Foo");
        assert_eq!(name, None, "{symbol}");
    }
}

#[test]
fn suffixes_tell_what_a_compiler_made_of_a_function() {
    for (symbol, told) in [
        ("rocksdb_write", Form::Whole),
        ("main.main", Form::Whole),
        ("runtime.(*mcache).nextFree.func1", Form::Whole),
        ("foo.llvm.1234", Form::Whole),
        ("foo.lto_priv.0", Form::Whole),
        ("_ZN3fooEv.part.0", Form::Clone),
        ("_ZN3fooEv.isra.0.constprop.1", Form::Clone),
        ("foo.cold", Form::Fragment),
        ("foo.isra.0.cold", Form::Fragment),
        ("foo.cold.12", Form::Fragment),
        ("foo.cold.llvm.12", Form::Fragment),
        ("cold", Form::Whole),
        ("part.0", Form::Whole),
    ] {
        assert_eq!(form(symbol), told, "{symbol}");
    }
    assert_eq!(plain("memcpy@@GLIBC_2.14"), "memcpy");
    assert_eq!(plain("foo.llvm.1234"), "foo");
    assert_eq!(plain("foo.lto_priv.0"), "foo");
    assert_eq!(plain("main.main"), "main.main");
    assert_eq!(plain("@"), "@");
}

/// What nm(1) says of a file's functions.
fn functions(path: &str, flags: &[&str]) -> BTreeSet<String> {
    let mut nm = Command::new("nm");
    let output = nm.args(flags).args(["--defined-only", path]).output();
    let lines = String::from_utf8(output.unwrap().stdout).unwrap();
    lines
        .lines()
        .filter_map(|line| line.split_once(' ')?.1.split_once(' '))
        .filter(|(kind, _)| matches!(*kind, "T" | "t" | "W" | "w"))
        .map(|(_, symbol)| symbol.split('@').next().unwrap_or_default().to_string())
        .collect()
}

fn libstdcpp() -> BTreeSet<String> {
    let path = Command::new("g++")
        .arg("-print-file-name=libstdc++.so")
        .output();
    let path = String::from_utf8(path.unwrap().stdout).unwrap();
    functions(path.trim(), &["-D"])
}

/// What c++filt(1) makes of symbols.
fn filtered(symbols: &[&String]) -> Vec<String> {
    let mut child = Command::new("c++filt")
        .arg("-p")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let text: String = symbols.iter().map(|symbol| format!("{symbol}\n")).collect();
    let writer = thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(str::to_string).collect()
}

#[test]
fn names_are_those_that_cppfilt_prints() {
    let symbols = libstdcpp();
    // Those of std::string are written out there. Others are no functions that somebody calls by name.
    let is_compared = |symbol: &&String| {
        symbol.starts_with("_Z")
            && !["_ZT", "_ZG", "_ZNS", "_ZNKS"]
                .iter()
                .any(|prefix| symbol.starts_with(prefix))
            || ["_ZNSt", "_ZNKSt"]
                .iter()
                .any(|prefix| symbol.starts_with(prefix))
    };
    let symbols: Vec<&String> = symbols.iter().filter(is_compared).collect();
    let (mut unknown, mut different) = (0, Vec::new());
    for (symbol, expected) in symbols.iter().zip(filtered(&symbols)) {
        match demangle(symbol) {
            None => unknown += 1,
            Some(name) if name == expected => {}
            Some(name) => different.push((symbol, name, expected)),
        }
    }
    assert!(symbols.len() > 2000, "{}", symbols.len());
    assert!(unknown < symbols.len() / 50, "{unknown}");
    assert!(different.len() < symbols.len() / 100, "{different:#?}");
}

#[test]
fn no_identifier_is_missing_from_the_symbol_it_was_read_from() {
    let mut symbols = libstdcpp();
    let own = std::env::current_exe().unwrap();
    symbols.extend(functions(own.to_str().unwrap(), &[]));
    let mut count = 0;
    for symbol in symbols {
        let name = demangle(&symbol).unwrap_or_default();
        for piece in name.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')) {
            if is_verbatim(piece) {
                assert!(symbol.contains(piece), "{piece} {symbol} {name}");
                count += 1;
            }
        }
    }
    assert!(count > 100_000, "{count}");
    for piece in ["alloc", "std", "nsigned", "5ul", "42", "i", "_"] {
        assert!(!is_verbatim(piece), "{piece}");
    }
}

/// Symbols that take some demanglers all the time there is.
fn hostile() -> Vec<String> {
    let deep = |before: &str, part: &str, after: &str| {
        let count = (SYMBOL_LIMIT - before.len() - after.len()) / part.len();
        format!("{before}{}{after}", part.repeat(count))
    };
    let mut doubling = "_ZN1AIFvvE".to_string();
    for number in 0..60 {
        let digits = char::from_digit(number % 36, 36).unwrap_or('_');
        doubling.push_str(&format!("FvS{0}_S{0}_E", digits.to_ascii_uppercase()));
    }
    vec![
        deep("_ZN7rocksdb6DBImpl7SyncWALE", "S_atatS_IS_", ""),
        deep("_ZN1A", "IS_", "E1fEv"),
        deep("_ZN1AI", "PFvI", "E1fEv"),
        deep("_ZN1AI", "P", "i1fEv"),
        deep("_Z", "Z", "1fEv"),
        deep("_Z", "N", "1fEv"),
        deep("_ZN1AI", "J", "E1fEv"),
        deep("_ZN1AI", "XadL_Z1fI", "E1fEv"),
        deep("_Z", "cv", "i"),
        deep("_ZZ1fvENK", "UlT_", "E_clEv"),
        deep("_ZN1A", "IiE", "E1fEv"),
        deep("_ZN1A", "1A", "Ev"),
        deep("_ZN1AI1BE", "3fooISB_E", "1fEv"),
        doubling,
        deep("_R", "NvNt", "C1a1b"),
        deep("_RMC0", "R", "e"),
        deep("_RMC0", "FG_", "e"),
        deep("_RINvC1a1f", "TB6_B6_", "EE"),
        deep("_RINvC1a1f", "TTB7_B7_EB7_", "E"),
        deep("_RMC0TTTBd_Bd_E", "Bb_Bb_", "E"),
        deep("_ZN", "1a", "17h0123456789abcdefE"),
        deep("_ZN", "4$LT$", "17h0123456789abcdefE"),
    ]
}

#[test]
fn no_symbol_takes_long_or_much_of_the_stack() {
    let small = thread::Builder::new().stack_size(512 << 10);
    let demangled = small.spawn(|| {
        for symbol in hostile() {
            assert!(symbol.len() <= SYMBOL_LIMIT, "{symbol}");
            let start = Instant::now();
            let name = demangle(&symbol);
            let time = start.elapsed();
            println!("{time:?} {:?} {symbol:.40}", name.as_ref().map(String::len));
            assert!(time < Duration::from_millis(500), "{time:?} {symbol}");
            assert!(name.is_none_or(|name| name.len() <= SYMBOL_LIMIT));
        }
    });
    demangled.unwrap().join().unwrap();
}

#[test]
fn a_symbol_or_name_may_be_so_long_and_no_longer() {
    let symbol = |length: usize| format!("_Z{length}{}v", "x".repeat(length));
    assert_eq!(demangle(&symbol(1017)), Some("x".repeat(1017)));
    assert_eq!(demangle(&symbol(1018)), None);
    // Each argument is one letter in the symbol, and thirteen in the name.
    let arguments = |count: usize| format!("_ZN1AI{}E1fEv", "h".repeat(count));
    let longest = demangle(&arguments(68)).map(|name| name.len());
    assert_eq!(longest, Some(SYMBOL_LIMIT));
    assert_eq!(demangle(&arguments(69)), None);
}

proptest! {
    /// What the grammar is made of, in any order.
    #[test]
    fn any_symbol_has_a_name_or_none(
        start in "_ZN?|_R|_ZZ|_ZT[hvcWH][0-9n_]{0,4}",
        parts in "([NISTZEFPKRALXJMDUCv_0-9a-z]|1a|S_|St|Sa|T_|_Z|Ul|XadL_Z|Li0E|17h0123456789abcdefE){0,60}",
    ) {
        let symbol = format!("{start}{parts}");
        let start = Instant::now();
        let name = demangle(&symbol);
        prop_assert!(name.is_none_or(|name| name.len() <= SYMBOL_LIMIT));
        prop_assert!(called(&symbol).len() <= SYMBOL_LIMIT);
        prop_assert!(start.elapsed() < Duration::from_secs(1), "{symbol}");
    }
}
