"""Graph networks: every draw sends its messages along edges of its own. The oracle is a member alone on the graph."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GAT, GCN, GATConv, GATv2Conv, GCNConv, GraphSizeNorm, SAGEConv, global_mean_pool

import slimbayes as sb

NODES, EDGES = 7, 12


class OwnConv(nn.Module):
    """A graph convolution as one writes it by hand."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.lin = nn.Linear(inputs, outputs)

    def forward(self, x, edge_index):
        h = self.lin(x)
        return torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]])


class Nodes(nn.Module):
    def __init__(self, conv=OwnConv) -> None:
        super().__init__()
        self.first, self.second = conv(4, 8), conv(8, 3)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Mixed(nn.Module):
    """One layer of each of PyTorch Geometric's usual kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([GCNConv(4, 8), SAGEConv(8, 8), GATConv(8, 3)])

    def forward(self, x, edge_index):
        for layer in self.layers:
            x = layer(x, edge_index).tanh()
        return x


class Graphs(nn.Module):
    """Pools nodes, and so has a row for each graph."""

    def __init__(self, conv=GCNConv) -> None:
        super().__init__()
        self.conv, self.head = conv(4, 8), nn.Linear(8, 3)

    def forward(self, x, edge_index, batch):
        return self.head(global_mean_pool(self.conv(x, edge_index).relu(), batch))


class OfData(Graphs):
    def forward(self, data):
        assert data.ptr.shape == (data.num_graphs + 1,)
        assert torch.equal(data.batch, torch.arange(data.num_graphs).repeat_interleave(data.ptr.diff()))
        pooled = global_mean_pool(self.conv(data.x, data.edge_index).relu(), data.batch, size=data.num_graphs)
        return self.head(pooled)


def graph() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(NODES, 4), torch.randint(NODES, (2, EDGES))


def batch() -> Batch:
    return Batch.from_data_list(
        [Data(x=torch.randn(n, 4), edge_index=torch.randint(n, (2, 2 * n)), y=torch.tensor([n % 3])) for n in (3, 5, 4)]
    )


def ensemble(net: nn.Module) -> sb.BayesianModel:
    other = copy.deepcopy(net)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter))
    return sb.deep_ensemble([net, other])


METHODS = {
    "rank1": lambda net: sb.rank1(net, members=3, dropout_rate=0.1),
    "batch_ensemble": lambda net: sb.batch_ensemble(net, members=3),
    "mean_field": lambda net: sb.mean_field(net, init_std=0.1),
    "mean_field_local": lambda net: sb.mean_field(net, init_std=0.1, estimator="local"),
    "mean_field_flipout": lambda net: sb.mean_field(net, init_std=0.1, estimator="flipout"),
    "k_tied": lambda net: sb.k_tied(net, init_std=0.1),
    "mc_dropout": lambda net: sb.mc_dropout(net, 0.3),
    "deep_ensemble": ensemble,
}

NETWORKS = {
    "own": (Nodes, graph),
    "PyTorch Geometric": (Mixed, graph),
    "Batch": (OfData, lambda: (batch(),)),
    "pooled": (Graphs, lambda: (lambda b: (b.x, b.edge_index, b.batch))(batch())),
}
CONVERTING = {name: make for name, make in METHODS.items() if name != "deep_ensemble"}
CASES = [(method, network) for method in METHODS for network in NETWORKS if network != "pooled" or method == "rank1"]


@pytest.mark.parametrize(("method", "network"), CASES)
def test_each_draw_is_its_member_alone_on_the_graph(method, network):
    build, make = NETWORKS[network]
    torch.manual_seed(0)
    model, inputs = METHODS[method](build()).eval(), make()
    draw = model.draw(2)
    draws, rows = 2 * model.members, 3 if network in ("pooled", "Batch") else NODES
    with torch.no_grad():
        outputs = model(*inputs, draw=draw)
        assert outputs.shape == (draws, rows, 3)
        for d in range(draws):
            alone = model.member(d // 2, sample=d % 2, draw=draw)(*inputs)
            torch.testing.assert_close(outputs[d], alone, rtol=1e-5, atol=2e-6)
    model.check(*inputs)
    p = model.predict(*inputs, samples=2, likelihood="categorical", max_memory=1)  # samples come in parts, nodes never
    assert p.probs.shape == (rows, 3)
    model.train()
    (model(*inputs, samples=2).square().mean() + model.kl()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_messages_reach_every_draw():
    """Before, all of them went to draw 0: 1.27, 0, 0."""
    torch.manual_seed(0)
    model = sb.rank1(Nodes(), members=3, init="ones")
    sizes = model(*graph(), samples=0).abs().mean((1, 2))
    assert sizes[0] > 0
    torch.testing.assert_close(sizes, sizes[:1].expand(3))


@pytest.mark.parametrize("method", ["rank1", "mean_field_local", "deep_ensemble"])
def test_what_belongs_to_edges_goes_with_them(method):
    class Weighted(Nodes):
        def forward(self, x, edge_index, edge_weight):
            return self.second(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)

    model = METHODS[method](Weighted(GCNConv)).eval()
    x, edges = graph()
    weights, draw = torch.rand(EDGES), model.draw(1)
    for given in ((x, edges, weights), (x, sb.BatchAxis(edges, index=True), sb.BatchAxis(weights, 0))):
        outputs = model(*given, draw=draw)
        for k in range(model.members):
            alone = model.member(k, sample=0, draw=draw)(x, edges, weights)
            torch.testing.assert_close(outputs[k], alone, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("method", CONVERTING)
def test_edges_that_a_network_keeps_are_warned_of(method):
    """Before, all messages of a prediction went to its first draw, and nobody but `model.check` said so."""

    class Keeping(Nodes):
        def __init__(self, edges) -> None:
            super().__init__()
            self.register_buffer("edges", edges)

        def forward(self, x):
            return super().forward(x, self.edges)

    x, edges = graph()
    edges[:, 0] = NODES - 1
    for samples in (1, 3):
        model = CONVERTING[method](Keeping(edges))
        with pytest.warns(UserWarning, match="does not keep its rows in order.*edges as an input"):
            model(x, samples=samples)
        model(x)  # a warning would be an error here


def test_two_nodes_are_no_batch_of_edges():
    model = sb.rank1(Nodes(GCNConv), members=3)
    x, edges = torch.randn(2, 4), torch.tensor([[0, 1, 1], [1, 0, 1]])
    torch.testing.assert_close(model(x, edges, samples=0)[2], model.member(2)(x, edges))


def test_edges_are_recognised_by_name_and_refused_without():
    class Unnamed(Nodes):
        def forward(self, x, e):
            return super().forward(x, e)

    x, edges = graph()
    model = sb.rank1(Unnamed(), members=3)
    for call in (model, model.predict):
        with pytest.raises(ValueError, match=r"shape \(2, 12\) addresses.*index=True.*dim=None"):
            call(x, edges)
    with pytest.raises(ValueError, match="addresses"):
        model(x, edges[0])
    marked = sb.BatchAxis(edges, index=True)
    torch.testing.assert_close(model(x, marked, samples=0)[1], model.member(1)(x, edges))
    with pytest.warns(UserWarning, match="does not keep its rows in order"):  # the user's word, which is wrong
        model(x, sb.BatchAxis(edges, dim=None), samples=0)


@pytest.mark.parametrize("first", [torch.arange(NODES), torch.randn(NODES, 5, 4)], ids=["numbers", "histories"])
def test_edges_are_refused_beside_other_inputs_than_a_table(first):
    """Before, nodes given by their numbers, or with a history each, sent all messages to draw 0."""

    class Unnamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.names, self.conv = nn.Embedding(NODES, 4), OwnConv(4, 3)

        def forward(self, x, pairs):
            return self.conv(x if x.is_floating_point() else self.names(x), pairs)

    model, edges = sb.rank1(Unnamed(), members=3), graph()[1]
    for call in (model, model.predict):
        with pytest.raises(ValueError, match=r"shape \(2, 12\) addresses.*index=True"):
            call(first, edges)
    torch.testing.assert_close(
        model(first, sb.BatchAxis(edges, index=True), samples=0)[1], model.member(1)(first, edges)
    )


def test_matrices_between_examples_are_named():
    class Adjacent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(4, 3)

        def forward(self, x, adjacency):
            return adjacency @ self.lin(x)

    x, adjacency = torch.randn(NODES, 4), (torch.rand(NODES, NODES) < 0.3).float()
    for model in (sb.rank1(Adjacent(), members=3), sb.mean_field(Adjacent())):
        with pytest.raises(ValueError, match=r"shape \(7, 7\) was taken for the rows of 7.*model\(x\[None\]"):
            model.predict(x, adjacency)
        for call in (model, model.predict):
            with pytest.raises(ValueError, match=r"a sparse matrix of shape \(7, 7\).*indices\(\), index=True"):
                call(x, adjacency.to_sparse())
        shared = sb.BatchAxis(adjacency, dim=None)
        draw = model.draw(2)
        whole = model(x[None], shared, draw=draw)
        torch.testing.assert_close(whole[1, 0], model.member(0, sample=1, draw=draw)(x, adjacency))


def test_wrong_indices_are_named():
    x, edges = graph()
    with pytest.raises(ValueError, match=r"positions from 0 to 6, but got \d+ to 9"):
        sb.rank1(Nodes())(x, torch.cat([edges, torch.tensor([[9], [0]])], 1))
    with pytest.raises(ValueError, match="whole numbers along an axis"):
        sb.BatchAxis(x, index=True)
    with pytest.raises(ValueError, match="`dim` of BatchAxis, but got none"):
        sb.BatchAxis(x)
    with pytest.raises(ValueError, match="a row for each node beside"):
        sb.rank1(Nodes())(edge_index=edges)


def test_what_cannot_be_right_is_refused():
    x, edges = graph()
    with pytest.raises(ValueError, match="cached=True.*cached=False"):
        sb.rank1(Nodes(lambda i, o: GCNConv(i, o, cached=True)))(x, edges)
    with pytest.raises(ValueError, match="`train_on` to be 'tile'.*graph"):
        sb.rank1(Nodes(), train_on="split").train()(x, edges)

    class Mean(Nodes):
        def forward(self, x, edge_index):
            return super().forward(x, edge_index).mean(0, keepdim=True)

    with pytest.raises(ValueError, match=r"a row for each node, edge or graph.*shape \(1, 3\).*index=number_of_graphs"):
        sb.rank1(Mean(), members=3)(x, edges)
    assert ensemble(Mean())(x, edges).shape == (2, 1, 3)  # each ran alone


@pytest.mark.parametrize("conv", [GATConv, GATv2Conv])
def test_edges_behind_appended_loops_stay_points(conv):
    class WithAttributes(Nodes):
        def forward(self, x, edge_index, edge_attr):
            return self.second(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_attr)

    for loops in (True, False):
        model = sb.rank1(WithAttributes(lambda i, o, loops=loops: conv(i, o, edge_dim=2, add_self_loops=loops)))
        assert ("first.lin_edge" in model.summary().converted) is not loops
        assert not loops or "add_self_loops=False" in model.summary().left["first.lin_edge"]
        model.check(*graph(), torch.randn(EDGES, 2))


@pytest.mark.parametrize("method", CONVERTING)
@pytest.mark.parametrize("norm", ["LayerNorm", "GraphNorm", "InstanceNorm", "PairNorm"])
def test_what_mixes_the_nodes_of_all_draws_is_refused_until_it_knows_the_graphs(norm, method):
    """Before, draws shared the statistics of these norms, by up to 90% of the outputs, without a word."""
    torch.manual_seed(0)
    net, (x, edges) = GCN(4, 8, 2, 3, norm=norm), graph()
    for call in (lambda model: model(x, edges), lambda model: model.predict(x, edges)):
        model = CONVERTING[method](net)
        with pytest.raises(ValueError, match=r"norm or a pooling over all nodes.*zeros for a single one"):
            call(model)
        assert model.training
    model, batch = CONVERTING[method](net).eval(), torch.zeros(NODES, dtype=torch.long)
    draw = model.draw(2)
    with torch.no_grad():
        outputs = model(x, edges, batch=batch, draw=draw)
        for d in range(2 * model.members):
            alone = model.member(d // 2, sample=d % 2, draw=draw)(x, edges, batch=batch)
            torch.testing.assert_close(outputs[d], alone, rtol=1e-5, atol=2e-6)


def test_stock_networks_with_norms_of_nodes_pass():
    x, edges = graph()
    for net in (GCN(4, 8, 2, 3, norm="BatchNorm"), GAT(4, 8, 2, 3, norm="LayerNorm", norm_kwargs={"mode": "node"})):
        assert sb.rank1(net, members=3)(x, edges).shape == (3, NODES, 3)


@pytest.mark.parametrize("method", CONVERTING)
def test_dropout_that_never_ends_is_not_taken_for_mixed_nodes(method):
    """Before, a call of F.dropout without `training` was refused, as a norm over all nodes."""

    class Dropped(Nodes):
        def forward(self, x, edge_index):
            return self.second(nn.functional.dropout(self.first(x, edge_index).relu()), edge_index)

    model, inputs = CONVERTING[method](Dropped()), graph()
    assert model(*inputs, samples=2).shape == (2 * model.members, NODES, 3)
    with pytest.raises(ValueError, match="random numbers of its own"):
        model.check(*inputs)


def test_draws_of_whole_networks_see_a_graph_each():
    """Two samples of a member are two graphs, of which each has its own size."""

    class Sized(Nodes):
        def __init__(self) -> None:
            super().__init__()
            self.norm = GraphSizeNorm()

        def forward(self, x, edge_index):
            return self.norm(super().forward(x, edge_index))

    model, inputs = ensemble(Sized()).eval(), graph()
    found = model(*inputs, samples=3)
    for k in range(2):
        torch.testing.assert_close(found[3 * k + 2], model.member(k)(*inputs))


def test_a_pooled_graph_is_told_how_to_say_so():
    class Pooled(Graphs):
        def forward(self, x, edge_index, batch=None):
            return super().forward(x, edge_index, batch)

    model, (x, edges) = sb.rank1(Pooled(), members=3), graph()
    with pytest.raises(ValueError, match=r"Layer head got 1 rows.*which graph each belongs to: sb\.BatchAxis"):
        model(x, edges)
    assert model(x, edges, torch.zeros(NODES, dtype=torch.long)).shape == (3, 1, 3)


def test_a_graph_convolution_learns():
    """Neighbours tell the class; a node's own features hardly do."""
    torch.manual_seed(0)
    labels = torch.arange(60) % 3
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    edges = (torch.rand(60, 60) < torch.where(same, 0.3, 0.01)).nonzero().T
    x = nn.functional.one_hot(labels, 3) + 1.5 * torch.randn(60, 3)
    assert (x.argmax(1) == labels).float().mean() < 0.75

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GCNConv(3, 16), GCNConv(16, 3)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index)

    model = sb.rank1(Net(), members=3)
    train = torch.arange(60) < 30
    elbo = sb.ELBO(model, num_data=30, beta=0.1)
    optimiser = torch.optim.Adam(model.param_groups(lr=0.05, weight_decay=1e-4))
    for _ in range(50):
        optimiser.zero_grad()
        elbo(model(x, edges)[:, train], labels[train]).backward()
        optimiser.step()
    p = model.predict(x, edges, samples=5, seed=0)
    assert (p.label == labels)[~train].float().mean() > 0.9


def test_a_batch_of_graphs_learns():
    """Whether a graph is a ring or a star shows in its messages alone: all features are equal."""
    torch.manual_seed(0)

    def of(n: int, star: bool) -> Data:
        i = torch.arange(1, n)
        ends = torch.stack([i, torch.zeros_like(i) if star else i - 1])
        return Data(x=torch.ones(n, 4), edge_index=torch.cat([ends, ends.flip(0)], 1), y=torch.tensor([int(star)]))

    graphs = [of(5 + i % 7, i % 2 == 0) for i in range(40)]
    model = sb.mean_field(OfData(lambda i, o: GCNConv(i, o)), init_std=0.01)
    elbo = sb.ELBO(model, num_data=1000, beta=0.01)
    optimiser = torch.optim.Adam(model.param_groups(lr=0.05))
    train = Batch.from_data_list(graphs[:28])
    for _ in range(80):
        optimiser.zero_grad()
        elbo(model(train), train.y).backward()
        optimiser.step()
    test = Batch.from_data_list(graphs[28:])
    p = model.predict(test, samples=5, seed=0)
    assert p.probs.shape == (12, 3)
    assert (p.label == test.y).float().mean() > 0.9


def test_edges_without_a_mark_are_noticed_after_a_pass_with_marked_ones():
    """Before, a first pass on a graph settled the question for rows, too: all messages went to draw 0 in silence."""

    class Messages(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x, sources, ends):
            h = self.layer(x)
            return torch.zeros_like(h).index_add(0, ends, h[sources])

    model, x = sb.rank1(Messages(), members=3), torch.randn(7, 4)
    sources, ends = torch.arange(7), torch.arange(7).roll(1)  # as many edges as nodes
    marked = [sb.BatchAxis(edges, index=True) for edges in (sources, ends)]
    shares = model(x, *marked, samples=0).abs().mean((1, 2))
    torch.testing.assert_close(shares, shares[:1].expand(3), rtol=0.5, atol=0.0)
    with pytest.warns(UserWarning, match="does not keep its rows in order"):
        model(x, sources, ends)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_graph_as_a_sparse_matrix_is_refused():
    model = sb.rank1(GCNConv(4, 3), members=2, init="ones")
    x, edges = torch.randn(NODES, 4), torch.randint(NODES, (2, EDGES))
    adjacency = torch.sparse_coo_tensor(edges, torch.ones(EDGES), (NODES, NODES)).coalesce()
    with pytest.raises(ValueError, match="edge_index|sparse"):
        model(Data(x=x, adj_t=adjacency))


def test_packed_sequences_do_not_stand_beside_an_index():
    model = sb.rank1(Nodes(), members=2)
    packed = nn.utils.rnn.pack_sequence([torch.randn(3, 4)])
    with pytest.raises(ValueError, match="PackedSequence"):
        model(torch.randn(NODES, 4), sb.BatchAxis(torch.randint(NODES, (2, EDGES)), index=True), packed)
