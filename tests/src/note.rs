//! What a scenario prints beside its figures. Several play at the same time, so each line says whose it is.

use std::cell::Cell;

thread_local! {
    static SCENARIO: Cell<&'static str> = const { Cell::new("") };
}

/// Has all that this thread notes from now on carry the name of a scenario: each plays on a thread of its own.
pub fn belongs_to(scenario: &'static str) {
    SCENARIO.set(scenario);
}

/// A remark as it is printed: with the name of this thread's scenario, where it plays one.
pub fn labelled(remark: &str) -> String {
    match SCENARIO.get() {
        "" => format!("          {remark}"),
        scenario => format!("          {scenario}: {remark}"),
    }
}

/// Prints a remark of this thread's scenario. The arguments are those of `format!`.
#[macro_export]
macro_rules! note {
    ($($remark:tt)*) => {
        println!("{}", $crate::note::labelled(&format!($($remark)*)))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_carries_the_name_of_its_threads_scenario() {
        assert_eq!(labelled("off by one"), "          off by one");
        belongs_to("figures");
        assert_eq!(labelled("off by one"), "          figures: off by one");
        let elsewhere = std::thread::spawn(|| labelled("off by one"));
        assert_eq!(elsewhere.join().unwrap(), "          off by one");
    }
}
