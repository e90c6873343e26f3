use proptest::prelude::*;

use super::*;
use crate::{
    ProfileMode,
    testing::{any_stacks, stacks},
};

const VIEW: View = View {
    place: 1,
    by: By::Thread,
};

#[test]
fn stacks_become_lines() {
    let mut some = stacks(
        ProfileMode::Cpu,
        &[
            "verify_blocks;ckb|main;libc.so.6|write;[k]ksys_write 1 10",
            "verify_blocks;ckb|main 2 20",
            "b;ckb|main 2 0",
            "GlobalRt-1;ckb|main 3 30",
        ],
    );
    some.add(&Stack {
        frames: vec![
            Frame::user("<[u8; 32] as A>::f\u{1b}[2J", "ckb"),
            Frame::user("", "ckb"),
        ],
        thread: "#1",
        target: "default/a",
        state: "sleeping",
        wait: "read of 000 12",
        weights: &[4, 40],
    });
    assert_eq!(
        folded(&some, VIEW),
        "GlobalRt-1;main 30\n\
         _#1;[sleeping];<[u8: 32] as A>::f\u{fffd}[2J;[unknown];[waits: read of 000 12] 40\n\
         verify_blocks;main 20\n\
         verify_blocks;main;write;ksys_write_[k] 10\n"
    );
    let of = |by| folded(&some, View { place: 0, by });
    assert!(of(By::Nothing).contains("main 7\n"));
    assert!(of(By::Target).contains("default/a;[sleeping];"));
    assert!(of(By::Category).contains("verification;main;write;ksys_write_[k] 1\n"));
}

#[test]
fn a_number_at_the_end_of_a_name_is_no_weight() {
    let mut some = Stacks::of(ProfileMode::OffCpu);
    let frames = vec![Frame::user("worker 12", "")];
    some.add(&Stack {
        frames,
        weights: &[5],
        ..Stack::default()
    });
    let view = View {
        place: 0,
        by: By::Thread,
    };
    assert_eq!(folded(&some, view), "worker_12 5\n");
}

#[test]
fn a_difference_is_of_equal_totals_and_marks_what_is_new_and_gone() {
    let before = stacks(
        ProfileMode::Cpu,
        &["t;main;old 0 10", "t;main;both 0 20", "t;main 0 10"],
    );
    let after = stacks(
        ProfileMode::Cpu,
        &["t;main;new;deep 0 20", "t;main;both 0 60"],
    );
    let difference = Difference::of(&before, &after, VIEW).unwrap();
    assert_eq!((difference.before, difference.after), (40, 80));
    assert_eq!(
        difference.folded(),
        "t;main 20 0\nt;main;both 40 60\nt;main;new [new];deep [new] 0 20\nt;main;old [gone] 20 0\n"
    );
}

#[test]
fn a_difference_to_nothing_is_all_new_or_all_gone() {
    let (some, none) = (
        stacks(ProfileMode::Cpu, &["t;main 0 10"]),
        Stacks::of(ProfileMode::Cpu),
    );
    let folded = |before, after| Difference::of(before, after, VIEW).unwrap().folded();
    assert_eq!(folded(&none, &some), "t [new];main [new] 0 10\n");
    assert_eq!(folded(&some, &none), "t [gone];main [gone] 10 0\n");
    assert_eq!(folded(&none, &none), "");
    Difference::of(&some, &Stacks::of(ProfileMode::OffCpu), VIEW).unwrap_err();
}

proptest! {
    #[test]
    fn lines_weigh_what_stacks_weigh(some in any_stacks(ProfileMode::Cpu)) {
        let text = folded(&some, VIEW);
        let mut sum = 0_u64;
        for line in text.lines() {
            let (stack, weight) = line.rsplit_once(' ').unwrap();
            prop_assert!(!stack.contains(char::is_control));
            sum += weight.parse::<u64>().unwrap();
        }
        prop_assert_eq!(sum, some.total(1));
    }

    #[test]
    fn both_sides_of_a_difference_have_the_total_of_the_second((before, after) in (any_stacks(ProfileMode::Cpu), any_stacks(ProfileMode::Cpu))) {
        let difference = Difference::of(&before, &after, VIEW).unwrap();
        let mut sums = [0_u128; 2];
        for line in difference.folded().lines() {
            let mut words = line.rsplitn(3, ' ');
            for sum in sums.iter_mut().rev() {
                *sum += words.next().unwrap().parse::<u128>().unwrap();
            }
        }
        prop_assert_eq!(sums[1], u128::from(difference.after));
        let scaled = if difference.before == 0 || difference.after == 0 { difference.before } else { difference.after };
        prop_assert_eq!(sums[0], u128::from(scaled));
    }
}

#[cfg(feature = "render")]
mod pictures {
    use super::*;
    use crate::render::colours::colour;

    fn some() -> Stacks {
        stacks(
            ProfileMode::Cpu,
            &[
                "verify_blocks;ckb|main;ckb|ckb_vm_x64_execute 2 20000000",
                "verify_blocks;ckb|main;ckb|<script>alert(1)</script>&\"' 1 10000000",
            ],
        )
    }

    #[test]
    fn a_picture_names_what_is_in_it() {
        let svg = svg(&some(), VIEW, "a <title>").unwrap();
        assert!(
            svg.contains("<title>main (30 ms, 100.00%)</title>"),
            "{svg}"
        );
        assert!(svg.contains("<title>ckb_vm_x64_execute (20 ms, 66.67%)</title>"));
        assert!(svg.contains("a &lt;title&gt;"));
        assert!(svg.contains("Cpu: scripts 67 %, verification 33 %"));
        assert!(!svg.contains("<script>alert"));
    }

    #[test]
    fn a_page_lists_functions_and_takes_no_name_for_its_own() {
        let page = html(&some(), VIEW, "a {{svg}} <title>").unwrap();
        assert!(page.contains("<title>a {{svg}} &lt;title&gt;</title>"));
        assert!(page.contains("<td>66.7 %</td><td>20 ms</td><td><button type=\"button\">ckb_vm_x64_execute</button></td><td>ckb</td>"));
        assert!(
            page.contains(
                "<td>100.0 %</td><td>30 ms</td><td><button type=\"button\">main</button>"
            )
        );
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;&#39;"));
        assert!(
            !page.contains("<script>alert")
                && !page.contains("<?xml")
                && !page.contains("{{tables}}")
        );
    }

    /// Neither they nor what became of them is drawn, for this reason.
    fn refused(stacks: &Stacks, message: &str) {
        assert_eq!(svg(stacks, VIEW, "").unwrap_err().to_string(), message);
        let difference = Difference::of(stacks, stacks, VIEW).unwrap();
        let error = diff_svg(&difference, &stacks.types()[1], "").unwrap_err();
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn there_is_no_picture_of_nothing() {
        let message = "there is nothing to draw: no stack of the profile has any cpu";
        refused(&Stacks::of(ProfileMode::Cpu), message);
    }

    #[test]
    fn weights_beyond_what_can_be_drawn_are_refused() {
        let limit = crate::WEIGHT_LIMIT;
        let many = stacks(
            ProfileMode::Cpu,
            &[&format!("a;main 0 {limit}"), &format!("b;main 0 {limit}")],
        );
        let message = "it cannot be drawn: its weights add up to 9223372036854775807, which is beyond all measure";
        refused(&many, message);
    }

    #[test]
    fn what_is_gone_is_drawn_as_wide_as_it_was_and_differences_are_those_of_all_that_is_called() {
        let before = stacks(
            ProfileMode::Cpu,
            &[
                "t;main;old 0 40",
                "t;main;both 0 40",
                "t;main;both;deep 0 20",
            ],
        );
        let after = stacks(
            ProfileMode::Cpu,
            &[
                "t;main;new 0 10",
                "t;main;both;deep 0 90",
                "t;main!;x 0 100",
            ],
        );
        let difference = Difference::of(&before, &after, VIEW).unwrap();
        assert_eq!(
            difference.drawn().lines,
            [
                "t;main;both;deep 90",
                "t;main;new [new] 10",
                "t;main;old [gone] 80",
                "t;main! [new];x [new] 100"
            ]
        );
        let count = crate::SampleType::new("samples", "count");
        let svg = diff_svg(&difference, &count, "difference").unwrap();
        let fill = |title: &str| {
            let (_, rest) = svg
                .split_once(&format!("<title>{title}</title>"))
                .unwrap_or_else(|| panic!("{title}: {svg}"));
            let fill = rest.split_once(" fill=\"rgb(").unwrap().1;
            fill.split_once(')').unwrap().0.to_owned()
        };
        assert_eq!(
            fill("all (100.00% before, 100.00% after: +0.00)"),
            "245,245,245"
        );
        assert_eq!(
            fill("t (100.00% before, 100.00% after: +0.00)"),
            "245,245,245"
        );
        assert_eq!(
            fill("main! [new] (0.00% before, 50.00% after: +50.00)"),
            "213,94,0"
        );
        assert_eq!(
            fill("x [new] (0.00% before, 50.00% after: +50.00)"),
            "213,94,0"
        );
        assert_eq!(
            fill("main (100.00% before, 50.00% after: -50.00)"),
            "0,114,178"
        );
        let [red, _, blue] = numbers(&fill("deep (20.00% before, 45.00% after: +25.00)"));
        assert!(red > blue + 100);
        let [red, _, blue] = numbers(&fill("both (60.00% before, 45.00% after: -15.00)"));
        assert!(blue > red + 50);
        fill("old [gone] (40.00% before, 0.00% after: -40.00)");
        fill("new [new] (0.00% before, 5.00% after: +5.00)");
    }

    #[test]
    fn what_may_be_chance_is_called_noise_and_has_no_colour() {
        let before = stacks(ProfileMode::Cpu, &["t;main;a 50 50", "t;main;b 50 50"]);
        let after = stacks(ProfileMode::Cpu, &["t;main;a 53 53", "t;main;c 47 47"]);
        let difference = Difference::of(&before, &after, VIEW).unwrap();
        let svg = diff_svg(&difference, &before.types()[1], "").unwrap();
        let (_, a) = svg
            .split_once("<title>a (50.00% before, 53.00% after: +3.00, noise)</title>")
            .unwrap();
        let fill = a.split_once(" fill=\"rgb(").unwrap().1;
        assert!(fill.starts_with("245,245,245)"), "{fill}");
        // All that calls them is as it was, which is no noise.
        assert!(svg.contains("<title>main (100.00% before, 100.00% after: +0.00)</title>"));
        assert!(svg.contains("<title>b [gone] (50.00% before, 0.00% after: -50.00)</title>"));
        assert!(svg.contains("<title>c [new] (0.00% before, 47.00% after: +47.00)</title>"));
    }

    fn numbers(text: &str) -> [i32; 3] {
        let numbers: Vec<i32> = text
            .split(',')
            .map(|number| number.parse().unwrap())
            .collect();
        numbers.try_into().unwrap()
    }

    #[test]
    fn equal_profiles_have_no_colour() {
        let difference = Difference::of(&some(), &some(), VIEW).unwrap();
        let svg = diff_svg(&difference, &some().types()[1], "").unwrap();
        assert!(svg.contains("<title>main (100.00% before, 100.00% after: +0.00)</title>"));
        assert!(!svg.contains("rgb(0,114,178)") && !svg.contains("rgb(213,94,0)"));
    }

    /// How far two colours are apart for those who lack one kind of cone: in linear light, by Machado, Oliveira and Fernandes
    /// (2009, severity 1.0), and then by CIE 76.
    fn apart(one: [u8; 3], other: [u8; 3], eyes: [[f64; 3]; 3]) -> f64 {
        let lab = |colour: [u8; 3]| {
            let linear = colour.map(|part| {
                let part = f64::from(part) / 255.0;
                if part <= 0.04045 {
                    part / 12.92
                } else {
                    ((part + 0.055) / 1.055).powf(2.4)
                }
            });
            let times = |rows: [[f64; 3]; 3], by: [f64; 3]| {
                rows.map(|row| {
                    row.iter()
                        .zip(by)
                        .map(|(one, other)| one * other)
                        .sum::<f64>()
                })
            };
            let seen = times(eyes, linear).map(|part: f64| part.clamp(0.0, 1.0));
            let xyz = times(
                [
                    [0.4124, 0.3576, 0.1805],
                    [0.2126, 0.7152, 0.0722],
                    [0.0193, 0.1192, 0.9505],
                ],
                seen,
            );
            let root = |part: f64| {
                if part > 0.008_856 {
                    part.cbrt()
                } else {
                    7.787 * part + 16.0 / 116.0
                }
            };
            let [x, y, z] = [root(xyz[0] / 0.9505), root(xyz[1]), root(xyz[2] / 1.089)];
            [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
        };
        let (one, other) = (lab(one), lab(other));
        one.iter()
            .zip(other)
            .map(|(one, other)| (one - other).powi(2))
            .sum::<f64>()
            .sqrt()
    }

    #[test]
    fn more_and_less_are_told_apart_by_all_eyes() {
        let eyes = [
            (
                "all cones",
                [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            ),
            (
                "protanopia",
                [
                    [0.152_286, 1.052_583, -0.204_868],
                    [0.114_503, 0.786_281, 0.099_216],
                    [-0.003_882, -0.048_116, 1.051_998],
                ],
            ),
            (
                "deuteranopia",
                [
                    [0.367_322, 0.860_646, -0.227_968],
                    [0.280_085, 0.672_501, 0.047_413],
                    [-0.011_820, 0.042_940, 0.968_881],
                ],
            ),
            (
                "tritanopia",
                [
                    [1.255_528, -0.076_749, -0.178_779],
                    [-0.078_411, 0.930_809, 0.147_602],
                    [0.004_733, 0.691_367, 0.303_900],
                ],
            ),
        ];
        for (name, eyes) in eyes {
            // From the faintest on. 2.3 is the least that is noticed at all, when two colours lie side by side.
            for difference in [0.001, 0.25, 0.5, 0.75, 1.0] {
                let apart = apart(colour(difference), colour(-difference), eyes);
                assert!(apart > 20.0, "{name}, {difference}: {apart}");
            }
        }
    }
}
