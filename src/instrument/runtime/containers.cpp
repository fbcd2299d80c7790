// The standard containers are templates, except for the C++ library's functions on the nodes of trees (std::map,
// std::set) and of lists, which would access nodes in shared memory without checks. The compiler's pass replaces calls
// of these functions by calls of the functions in this file, which have the same names behind a prefix
// (library_calls.cpp).
//
// The nodes' layout and the functions' effects are part of the binary interface of libstdc++. The algorithms are the
// textbook's ([Cormen], red-black trees), on fields that are loaded and
// stored with checks.
#include <cstdint>
#include <cstring>
#include <utility>

#include "instrument/abi.h"

namespace {

template <typename T>
class Field {
 public:
  operator T() const {  // NOLINT: stands for the value
    T value;
    __multigrain_load(&value_, sizeof value, &value);
    return value;
  }
  Field& operator=(T value) {
    __multigrain_store(&value_, sizeof value, &value);
    return *this;
  }
  Field& operator=(const Field& other) { return *this = static_cast<T>(other); }
  T operator->() const { return *this; }

 private:
  T value_;
};

enum Color : int { kRed = 0, kBlack = 1 };

struct TreeNode {
  Field<Color> color;
  Field<TreeNode*> parent;
  Field<TreeNode*> left;
  Field<TreeNode*> right;
};

struct ListNode {
  Field<ListNode*> next;
  Field<ListNode*> previous;
};

// Returns the other side.
Field<TreeNode*> TreeNode::* opposite(Field<TreeNode*> TreeNode::* side) {
  return side == &TreeNode::left ? &TreeNode::right : &TreeNode::left;
}

TreeNode* furthest(TreeNode* node, Field<TreeNode*> TreeNode::* side) {
  while (TreeNode* const next = node->*side) node = next;
  return node;
}

// Returns the next node in order, or the header if the node is the last. The header and the root are
// each other's parents.
TreeNode* increment(TreeNode* node) {
  if (TreeNode* const right = node->right) return furthest(right, &TreeNode::left);
  TreeNode* above = node->parent;
  while (node == above->right) {
    node = above;
    above = above->parent;
  }
  // If the tree has nothing to the right of the root, the header's right child is the root itself. The way up from the
  // root then goes through the header to the root again, and `node` is the header.
  return node->right != above ? above : node;
}
TreeNode* decrement(TreeNode* node) {
  // A node that is red and its parent's parent is the header. The last node comes before it.
  if (node->color == kRed && node->parent->parent == node) return node->right;
  if (TreeNode* const left = node->left) return furthest(left, &TreeNode::right);
  TreeNode* above = node->parent;
  while (node == above->left) {
    node = above;
    above = above->parent;
  }
  return above;
}

// Puts `to` into the place of `from` as a child.
void replace_child(TreeNode* from, TreeNode* to, TreeNode& header) {
  TreeNode* const above = from->parent;
  if (header.parent == from)
    header.parent = to;
  else if (above->left == from)
    above->left = to;
  else
    above->right = to;
}

// Rotates the tree at the node: the child on the other side comes up, and the node goes down to `side`.
void rotate(TreeNode* node, Field<TreeNode*> TreeNode::* side, TreeNode& header) {
  const auto other = opposite(side);
  TreeNode* const up = node->*other;
  TreeNode* const across = up->*side;
  node->*other = across;
  if (across != nullptr) across->parent = node;
  replace_child(node, up, header);
  up->parent = static_cast<TreeNode*>(node->parent);
  up->*side = node;
  node->parent = up;
}

void insert(bool insert_left, TreeNode* node, TreeNode* below, TreeNode& header) {
  node->parent = below;
  node->left = nullptr;
  node->right = nullptr;
  node->color = kRed;
  if (insert_left) {
    below->left = node;  // the header's left child is the leftmost node
    if (below == &header) {
      header.parent = node;
      header.right = node;
    } else if (header.left == below) {
      header.left = node;
    }
  } else {
    below->right = node;
    if (header.right == below) header.right = node;
  }
  while (header.parent != node && node->parent->color == kRed) {
    TreeNode* above = node->parent;
    TreeNode* const top = above->parent;
    const auto side = top->left == above ? &TreeNode::left : &TreeNode::right;
    TreeNode* const uncle = top->*opposite(side);
    if (uncle != nullptr && uncle->color == kRed) {
      above->color = kBlack;
      uncle->color = kBlack;
      top->color = kRed;
      node = top;
      continue;
    }
    if (above->*opposite(side) == node) {
      node = above;
      rotate(node, side, header);
      above = node->parent;
    }
    above->color = kBlack;
    top->color = kRed;
    rotate(top, opposite(side), header);
  }
  header.parent->color = kBlack;
}

TreeNode* erase(TreeNode* const gone, TreeNode& header) {
  TreeNode* child;  // the node that takes the removed place
  TreeNode* child_parent;
  Color lost;
  if (gone->left != nullptr && gone->right != nullptr) {
    // The next node in order takes the node's place and colour.
    TreeNode* const next = furthest(gone->right, &TreeNode::left);
    child = next->right;
    lost = next->color;
    if (next->parent == gone) {
      child_parent = next;
    } else {
      child_parent = next->parent;
      if (child != nullptr) child->parent = child_parent;
      child_parent->left = child;
      TreeNode* const right = gone->right;
      next->right = right;
      right->parent = next;
    }
    replace_child(gone, next, header);
    next->parent = static_cast<TreeNode*>(gone->parent);
    TreeNode* const left = gone->left;
    next->left = left;
    left->parent = next;
    next->color = static_cast<Color>(gone->color);
  } else {
    child = gone->left != nullptr ? gone->left : gone->right;
    child_parent = gone->parent;
    lost = gone->color;
    if (child != nullptr) child->parent = child_parent;
    replace_child(gone, child, header);
    if (header.left == gone) header.left = child != nullptr ? furthest(child, &TreeNode::left) : child_parent;
    if (header.right == gone) header.right = child != nullptr ? furthest(child, &TreeNode::right) : child_parent;
  }
  if (lost == kRed) return gone;
  while (child != header.parent && (child == nullptr || child->color == kBlack)) {
    const auto side = child_parent->left == child ? &TreeNode::left : &TreeNode::right;
    const auto other = opposite(side);
    TreeNode* brother = child_parent->*other;
    if (brother->color == kRed) {
      brother->color = kBlack;
      child_parent->color = kRed;
      rotate(child_parent, side, header);
      brother = child_parent->*other;
    }
    const auto is_black = [](TreeNode* node) { return node == nullptr || node->color == kBlack; };
    if (is_black(brother->*side) && is_black(brother->*other)) {
      brother->color = kRed;
      child = child_parent;
      child_parent = child->parent;
      continue;
    }
    if (is_black(brother->*other)) {
      (brother->*side)->color = kBlack;
      brother->color = kRed;
      rotate(brother, other, header);
      brother = child_parent->*other;
    }
    brother->color = static_cast<Color>(child_parent->color);
    child_parent->color = kBlack;
    if (TreeNode* const outer = brother->*other) outer->color = kBlack;
    rotate(child_parent, side, header);
    child = nullptr;
    break;
  }
  if (child != nullptr) child->color = kBlack;
  return gone;
}

void hook(ListNode* node, ListNode* before) {
  ListNode* const previous = before->previous;
  node->next = before;
  node->previous = previous;
  previous->next = node;
  before->previous = node;
}
void unhook(ListNode* node) {
  ListNode* const next = node->next;
  ListNode* const previous = node->previous;
  previous->next = next;
  next->previous = previous;
}

}  // namespace

#define MG_NAMED_ENTRY(name, symbol) __attribute__((visibility("default"))) name __asm__("__multigrain_" symbol)

extern "C" {

MG_NAMED_ENTRY(TreeNode* tree_increment(TreeNode* node), "_ZSt18_Rb_tree_incrementPSt18_Rb_tree_node_base");
MG_NAMED_ENTRY(const TreeNode* tree_increment_const(const TreeNode* node),
               "_ZSt18_Rb_tree_incrementPKSt18_Rb_tree_node_base");
MG_NAMED_ENTRY(TreeNode* tree_decrement(TreeNode* node), "_ZSt18_Rb_tree_decrementPSt18_Rb_tree_node_base");
MG_NAMED_ENTRY(const TreeNode* tree_decrement_const(const TreeNode* node),
               "_ZSt18_Rb_tree_decrementPKSt18_Rb_tree_node_base");
MG_NAMED_ENTRY(void tree_insert(bool left, TreeNode* node, TreeNode* below, TreeNode& header),
               "_ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_");
MG_NAMED_ENTRY(TreeNode* tree_erase(TreeNode* gone, TreeNode& header),
               "_ZSt28_Rb_tree_rebalance_for_erasePSt18_Rb_tree_node_baseRS_");
MG_NAMED_ENTRY(void list_hook(ListNode* node, ListNode* before), "_ZNSt8__detail15_List_node_base7_M_hookEPS0_");
MG_NAMED_ENTRY(void list_unhook(ListNode* node), "_ZNSt8__detail15_List_node_base9_M_unhookEv");
MG_NAMED_ENTRY(void list_transfer(ListNode* at, ListNode* first, ListNode* last),
               "_ZNSt8__detail15_List_node_base11_M_transferEPS0_S1_");
MG_NAMED_ENTRY(void list_swap(ListNode& a, ListNode& b), "_ZNSt8__detail15_List_node_base4swapERS0_S1_");
MG_NAMED_ENTRY(void list_reverse(ListNode* header), "_ZNSt8__detail15_List_node_base10_M_reverseEv");

TreeNode* tree_increment(TreeNode* node) {
  return increment(node);
}
const TreeNode* tree_increment_const(const TreeNode* node) {
  return increment(const_cast<TreeNode*>(node));
}
TreeNode* tree_decrement(TreeNode* node) {
  return decrement(node);
}
const TreeNode* tree_decrement_const(const TreeNode* node) {
  return decrement(const_cast<TreeNode*>(node));
}
void tree_insert(bool left, TreeNode* node, TreeNode* below, TreeNode& header) {
  insert(left, node, below, header);
}
TreeNode* tree_erase(TreeNode* gone, TreeNode& header) {
  return erase(gone, header);
}
void list_hook(ListNode* node, ListNode* before) {
  hook(node, before);
}
void list_unhook(ListNode* node) {
  unhook(node);
}
// Moves the nodes [first, last) in front of `at`.
void list_transfer(ListNode* at, ListNode* first, ListNode* last) {
  if (at == last) return;
  ListNode* const end = last->previous;
  ListNode* const before_first = first->previous;
  ListNode* const before_at = at->previous;
  before_first->next = last;
  last->previous = before_first;
  before_at->next = first;
  first->previous = before_at;
  end->next = at;
  at->previous = end;
}
void list_swap(ListNode& a, ListNode& b) {
  // Each header takes the other header's nodes. The header of an empty list points to itself.
  const auto is_empty = [](ListNode& header) { return header.next == &header; };
  const auto take = [](ListNode& header, ListNode* first, ListNode* last, bool none) {
    header.next = none ? &header : first;
    header.previous = none ? &header : last;
    if (none) return;
    first->previous = &header;
    last->next = &header;
  };
  ListNode* const first_a = a.next;
  ListNode* const last_a = a.previous;
  ListNode* const first_b = b.next;
  ListNode* const last_b = b.previous;
  const bool empty_a = is_empty(a);
  const bool empty_b = is_empty(b);
  take(a, first_b, last_b, empty_b);
  take(b, first_a, last_a, empty_a);
}
void list_reverse(ListNode* header) {
  ListNode* node = header;
  do {
    ListNode* const next = node->next;
    node->next = static_cast<ListNode*>(node->previous);
    node->previous = next;
    node = next;
  } while (node != header);
}

}  // extern "C"
