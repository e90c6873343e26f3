# Transactions that run the script, as requests to a node, a line for each request. What build-chain.sh hands over: $lock, which is the script's; $code, the
# output that holds its code; $capacity and $left, of a cell before and after it is spent.

def hex: if . < 16 then "0123456789abcdef"[. : . + 1] else (. / 16 | floor | hex) + (. % 16 | hex) end;

def call(method; parameters): {id: 0, jsonrpc: "2.0", method: method, params: parameters};

def generate: call("generate_block"; []);

def output(hash; number): {tx_hash: hash, index: "0x\(number | hex)"};

# Spends a cell and leaves so many others.
def spend(cell; count; capacity):
  call("send_transaction"; [{
    version: "0x0",
    header_deps: [],
    cell_deps: [{dep_type: "code", out_point: $code}],
    inputs: [{since: "0x0", previous_output: cell}],
    outputs: [range(count) | {capacity: capacity, lock: $lock, type: null}],
    outputs_data: [range(count) | "0x"],
    witnesses: []
  }, "passthrough"]);

# Of the genesis block's first transaction: the cell that is the script's becomes so many. They are there after three blocks, since
# a transaction is proposed before it is committed.
def split(count):
  (.outputs | map(.lock == $lock) | index(true)) as $number
  | [spend(output(.hash; $number); count; $capacity), generate, generate, generate];

# For each of so many blocks, so many transactions that spend cells. It is made when they are there: the node needs a moment after
# a block, or makes its next one beside it.
def fill(hash; blocks; transactions):
  range(blocks) as $block
  | [range(transactions) | spend(output(hash; $block * transactions + .); 1; $left)] + [generate];
