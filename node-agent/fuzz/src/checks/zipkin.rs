//! Texts that a program hands over as spans of Zipkin's JSON.

use ckb_probe_profiles::text::shown;
use ckb_probe_traces::{Group, Resource, Value, zipkin};

/// Reads the bytes as if a program had emitted them, and writes what they say as it is exported.
pub fn check(bytes: &[u8]) {
    let Ok(spans) = zipkin::read(bytes, 1_700_000_000_000_000_000) else {
        return;
    };
    for span in &spans {
        assert!(span.end_ns >= span.start_ns);
        assert!(span.parent != Some(span.id));
        assert!(*span.trace.bytes() != [0; 16] && *span.id.bytes() != [0; 8]);
        let is_fit = |text: &str| text.chars().all(|letter| shown(letter) == letter);
        assert!(is_fit(&span.name));
        assert!(span.events.iter().all(|moment| is_fit(&moment.name)));
        for (place, (name, value)) in span.attributes.iter().enumerate() {
            assert!(is_fit(name));
            assert!(!matches!(value, Value::Text(text) if !is_fit(text)));
            assert!(!name.starts_with("thread."), "who measures says that");
            let mut before = span.attributes[..place].iter();
            assert!(before.all(|(known, _)| known != name), "a name stands once");
        }
    }
    let group = Group::new(&Resource::new(&Vec::new()), &spans);
    assert_eq!(group.len(), spans.len());
    // A letter that is not shown takes three bytes in place of one, and each span and attribute a few more.
    let most = bytes.len() * 40 + spans.len() * 256;
    assert!(
        group.bytes() <= most,
        "{} of {}",
        group.bytes(),
        bytes.len()
    );
}
